"""Carry out a plan, on tokens or on pixels. Both are differentiable and both are undone by `plan.inverted()`.

For a ViT the two are one function up to its patch embedding, which treats every patch alike:
embed(shuffle_image(x)) == shuffle_tokens(embed(x)). Shuffling tokens moves far less memory.
"""

import torch
from torch import Tensor

from mjp.common.errors import InputError
from mjp.common.validate import pair
from mjp.method.plan import Plan, check_plan, sample_plan


def shuffle_tokens(tokens: Tensor, plan: Plan, *, prefix: int | None = None) -> Tensor:
    """Shuffle (B, prefix + N, D) tokens; the prefix (class, distillation, register tokens) stays where it is.

    Without `prefix` there is none, or one class token; state it for more (distillation, registers).
    """
    batch, length, width = _three_sizes(tokens)
    check_plan(plan, batch, None, tokens.device)  # how many tokens there are is looked at below
    cells = plan.mask.shape[1]
    found = length - cells
    if found not in ((0, 1) if prefix is None else (prefix,)):
        wanted = "" if prefix is None else f" after a prefix of {prefix}"
        raise InputError(
            f"tokens has {length} tokens, but the plan shuffles {cells} (grid {plan.grid}){wanted}: draw a plan for "
            "this grid, or state the number of prefix tokens"
        )
    if plan.budget == 0:
        return tokens
    # one flat index_select is nearly as fast as a copy; gather or advanced indexing cost several times that
    source = plan.permutation + torch.arange(found, batch * length, length, device=tokens.device).unsqueeze(1)
    if found:
        first = torch.arange(0, batch * length, length, device=tokens.device).unsqueeze(1)
        source = torch.cat([first + torch.arange(found, device=tokens.device), source], 1)
    return tokens.reshape(batch * length, width).index_select(0, source.flatten()).view(batch, length, width)


def shuffle_image(images: Tensor, plan: Plan, patch: int | tuple[int, int]) -> Tensor:
    """Shuffle the patches of (B, C, H, W) images; `patch` is their side in pixels, or (height, width)."""
    rows, columns = image_grid(images, patch)
    check_plan(plan, len(images), (rows, columns), images.device)
    if plan.budget == 0 and plan.pixels is None:
        return images
    batch, channels, height, width = images.shape
    ph, pw = height // rows, width // columns
    patches = images.reshape(batch, channels, rows, ph, columns, pw).permute(0, 2, 4, 3, 5, 1)  # (B, h, w, P, P, C)
    patches = patches.reshape(batch, rows * columns, ph * pw * channels)
    patches = shuffle_tokens(patches, plan, prefix=0)
    if plan.pixels is not None:
        patches = _shuffle_pixels(patches, plan.pixels, channels)
    patches = patches.view(batch, rows, columns, ph, pw, channels).permute(0, 5, 1, 3, 2, 4)
    return patches.reshape(batch, channels, height, width)


def spp(images: Tensor, patch: int | tuple[int, int], *, generator: torch.Generator, shared: bool = False) -> Tensor:
    """Shuffled pixels and patches (variant C): all patches change places, and inside each the pixels change places too,
    by one order that the patches of an image share."""
    plan = sample_spp_plan(len(images), image_grid(images, patch), patch, generator=generator, shared=shared)
    return shuffle_image(images, plan.to(images.device), patch)


def sample_spp_plan(
    batch: int,
    grid: tuple[int, int],
    patch: int | tuple[int, int],
    *,
    generator: torch.Generator,
    shared: bool = False,
    derangement: bool = False,
    probability: float = 1.0,
) -> Plan:
    """A plan that moves every patch and carries a pixel order for each image; mask ratio and blocks have no say."""
    plan = sample_plan(
        batch,
        grid,
        1.0,
        generator=generator,
        sampler="uniform",
        shared=shared,
        derangement=derangement,
        probability=probability,
    )
    ph, pw = patch_sides(patch)
    draws = 1 if shared else batch
    pixels = torch.rand(draws, ph * pw, generator=generator, device=generator.device).argsort(1).expand(batch, -1)
    # a batch that is left alone (then nothing is masked) keeps its pixels where they are too
    pixels = torch.where(plan.mask[:, :1], pixels, torch.arange(ph * pw, device=pixels.device))
    return plan._replace(pixels=pixels)


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


def _shuffle_pixels(patches: Tensor, pixels: Tensor, channels: int) -> Tensor:
    """(B, N, P·P·C) patches with their pixels reordered by (B, P·P) `pixels`; the colours of a pixel stay together."""
    batch, cells, length = patches.shape
    if pixels.shape[1] * channels != length:
        raise InputError(f"the plan reorders {pixels.shape[1]} pixels per patch, the patches have {length // channels}")
    source = pixels.view(batch, 1, -1, 1).expand(-1, cells, -1, channels)
    return patches.view(batch, cells, -1, channels).gather(2, source).view(batch, cells, length)


def _three_sizes(tokens: Tensor) -> tuple[int, int, int]:
    if not isinstance(tokens, Tensor) or tokens.ndim != 3:
        shape = tuple(tokens.shape) if isinstance(tokens, Tensor) else type(tokens).__name__
        raise InputError(f"tokens must be a tensor of shape (batch, tokens, width), not {shape}")
    batch, length, width = tokens.shape
    return batch, length, width
