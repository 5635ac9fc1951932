"""Cut pictures into patches and put patches together.

Patches are in reading order; the values of a patch are in the order (channel, row, column) in which a convolution's
weights hold them.
"""

from torch import Tensor

from mjp.common.errors import InputError
from mjp.common.validate import pair


def patchify(images: Tensor, patch: int | tuple[int, int]) -> Tensor:
    """(..., C, H, W) → (..., N, C·P·P); `patch` is the side of a patch in pixels, or (height, width)."""
    *batch, channels, height, width = images.shape
    rows, columns = image_grid(images.reshape(-1, channels, height, width), patch)
    ph, pw = height // rows, width // columns
    cells = images.reshape(-1, channels, rows, ph, columns, pw).permute(0, 2, 4, 1, 3, 5)  # (B, h, w, C, P, P)
    return cells.reshape(*batch, rows * columns, channels * ph * pw)


def unpatchify(patches: Tensor, grid: tuple[int, int], patch: int | tuple[int, int]) -> Tensor:
    """(..., N, C·P·P) → (..., C, H, W), the inverse of `patchify` for a grid of (rows, columns) patches."""
    *batch, _, _ = patches.shape
    (rows, columns), (ph, pw) = grid, patch_sides(patch)
    cells = patches.reshape(-1, rows, columns, patches.shape[-1] // (ph * pw), ph, pw)  # (B, h, w, C, P, P)
    return cells.permute(0, 3, 1, 4, 2, 5).reshape(*batch, -1, rows * ph, columns * pw)


def image_grid(images: Tensor, patch: int | tuple[int, int]) -> tuple[int, int]:
    """(rows, columns) of patches in (B, C, H, W) images; refuses sizes that the patch does not divide."""
    if not isinstance(images, Tensor) or images.ndim != 4:
        shape = tuple(images.shape) if isinstance(images, Tensor) else type(images).__name__
        raise InputError(f"images must be a tensor of shape (batch, channels, height, width), not {shape}")
    height, width = images.shape[-2:]
    ph, pw = patch_sides(patch)
    if height % ph or width % pw:
        raise InputError(
            f"images of {height}x{width} pixels do not divide into patches of {ph}x{pw}: resize or crop them to a "
            "multiple of the patch"
        )
    return height // ph, width // pw


def patch_sides(patch: int | tuple[int, int]) -> tuple[int, int]:
    return pair("patch", patch if isinstance(patch, tuple | list) else (patch, patch))
