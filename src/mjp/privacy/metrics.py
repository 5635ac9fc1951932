"""How close a reconstruction comes to the picture it was made from.

Every function takes RGB pictures in [0, 1], one (3, H, W) or a batch (B, 3, H, W), works in float64 and gives one value
per picture. A picture that is not finite, or that has no counterpart, is refused, so that it never enters a mean.

mse, psnr, ssim    pixel by pixel; psnr and ssim are scikit-image's
fft2d              1 − cosine of the spectra, as published before; legacy, see there
patch_psnr         dB of each patch, hence the share of patches that were recovered
exact_patches      which patches are the same in an 8-bit file
best_permutation   what the best reordering of the patches would score: content known, places unknown
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from mjp.common.errors import InputError
from mjp.pictures.patches import patchify

# An exact copy has no finite PSNR, and JSON has no infinity. Two float32 pictures of 224 px that differ in one value by
# the last bit below 1 are 196 dB apart, and float64 attacks reach 160 dB: in practice only copies touch this ceiling.
CEILING = 200.0
RECOVERED = 20.0  # dB: above it a patch counts as recovered

Perceptual = Callable[[Tensor, Tensor], float | None]  # LPIPS of one picture; None where it is not defined


@dataclass(frozen=True)
class Score:
    """All metrics of one reconstruction; None means not available, or that no patch is of that kind."""

    mse: float
    psnr: float
    ssim: float
    lpips: float | None
    fft2d: float
    recovered: float
    permuted_psnr: float
    psnr_masked: float | None
    psnr_unmasked: float | None
    exact: float
    exact_masked: float | None
    exact_unmasked: float | None


def score(
    original: Tensor, reconstruction: Tensor, *, patch: int, mask: Tensor | None = None, lpips: Perceptual | None = None
) -> Score:
    """Every metric of one (3, H, W) reconstruction; `mask` (N,): the masked patches, None if no patch is masked.

    Values outside [0, 1] are clamped first, as they are when a picture is shown; that only brings it closer.
    """
    original, reconstruction = _pictures(original, reconstruction, dims=(3,))
    if original.min() < 0 or original.max() > 1:
        raise InputError("the original picture has values outside [0, 1]: score pictures before normalisation")
    reconstruction = reconstruction.clamp(0, 1)
    masked, unmasked = _psnr_apart(original, reconstruction, patch, mask)
    exact = exact_patches(original, reconstruction, patch)
    exact_masked, exact_unmasked = (_share(part) for part in _apart(exact, mask))
    return Score(
        mse=mse(original, reconstruction).item(),
        psnr=psnr(original, reconstruction).item(),
        ssim=ssim(original, reconstruction).item(),
        lpips=None if lpips is None else lpips(original, reconstruction),
        fft2d=fft2d(original, reconstruction).item(),
        recovered=recovered_share(original, reconstruction, patch).item(),
        permuted_psnr=best_permutation_psnr(original, reconstruction, patch),
        psnr_masked=masked,
        psnr_unmasked=unmasked,
        exact=exact.double().mean().item(),
        exact_masked=exact_masked,
        exact_unmasked=exact_unmasked,
    )


def mse(original: Tensor, reconstruction: Tensor) -> Tensor:
    """Mean squared error of each picture."""
    original, reconstruction = _pictures(original, reconstruction)
    return (original - reconstruction).square().mean((-3, -2, -1))


def psnr(original: Tensor, reconstruction: Tensor) -> Tensor:
    """Peak signal-to-noise ratio of each picture in dB, at most `CEILING`. Average these, not the errors."""
    return _decibels(mse(original, reconstruction))


def ssim(original: Tensor, reconstruction: Tensor) -> Tensor:
    """Structural similarity of each picture (Wang et al. 2004): Gaussian window of 11 pixels, σ 1.5, K = .01, .03.

    Only windows inside the picture count, and colours are averaged, as scikit-image does it.
    """
    x, y = _pictures(original, reconstruction)
    if min(x.shape[-2:]) < 11:
        raise InputError(f"SSIM looks through windows of 11 pixels, the picture has {_size(x)}: use larger pictures")
    mean_x, mean_y = _blur(x), _blur(y)
    var_x, var_y = _blur(x * x) - mean_x**2, _blur(y * y) - mean_y**2
    covariance = _blur(x * y) - mean_x * mean_y
    luminance = (2 * mean_x * mean_y + 0.01**2) / (mean_x**2 + mean_y**2 + 0.01**2)
    structure = (2 * covariance + 0.03**2) / (var_x + var_y + 0.03**2)
    return (luminance * structure).mean((-3, -2, -1))


def fft2d(original: Tensor, reconstruction: Tensor) -> Tensor:
    """1 − cosine of the two pictures' 2-D spectra. Legacy: kept to compare with published tables.

    By Parseval's theorem this is 1 − cosine of the pixels themselves, so it ignores brightness and says nothing about
    frequencies. Against a black picture it is 1.
    """
    a, b = (torch.fft.fft2(x).flatten(-3) for x in _pictures(original, reconstruction))
    product = (a * b.conj()).real.sum(-1)
    lengths = torch.linalg.vector_norm(a, dim=-1) * torch.linalg.vector_norm(b, dim=-1)
    return 1 - product / lengths.clamp(min=1e-12)


def patch_psnr(original: Tensor, reconstruction: Tensor, patch: int) -> Tensor:
    """(N,) or (B, N): PSNR of each patch in dB, patches in reading order."""
    a, b = (patchify(x, patch) for x in _pictures(original, reconstruction))
    return _decibels((a - b).square().mean(-1))


def recovered_share(original: Tensor, reconstruction: Tensor, patch: int) -> Tensor:
    """Share of each picture's patches that are right to more than `RECOVERED` dB."""
    return (patch_psnr(original, reconstruction, patch) > RECOVERED).double().mean(-1)


def exact_patches(original: Tensor, reconstruction: Tensor, patch: int) -> Tensor:
    """(N,) or (B, N): patches in which no pixel is off by half a grey level: an 8-bit file of them is bit-exact."""
    a, b = (patchify(x, patch) for x in _pictures(original, reconstruction))
    return ((a - b).abs() < 0.5 / 255).all(-1)


def best_permutation_psnr(original: Tensor, reconstruction: Tensor, patch: int) -> float:
    """PSNR of one reconstruction after the reordering of its patches that brings it closest to the original.

    The gap to `psnr` is what wrong places cost.
    """
    original, reconstruction = _pictures(original, reconstruction, dims=(3,))
    a, b = patchify(original, patch), patchify(reconstruction, patch)  # (N, 3·P·P)
    return _decibels((a - b[_assign(a, b)]).square().mean()).item()


def match_batch(originals: Tensor, reconstruction: Tensor) -> Tensor:
    """(B,) which reconstruction belongs to which original: reconstruction[match[i]] is the one for originals[i].

    Gradients of a batch do not say in which order its pictures came, so the order with the least total error is taken.
    """
    originals, reconstruction = _pictures(originals, reconstruction, dims=(4,))
    return _assign(originals.flatten(1), reconstruction.flatten(1))


def _psnr_apart(
    original: Tensor, reconstruction: Tensor, patch: int, mask: Tensor | None
) -> tuple[float | None, float | None]:
    """PSNR over the pixels of the masked and of the unmasked patches."""
    errors = (patchify(original, patch) - patchify(reconstruction, patch)).square().mean(-1)  # (N,)
    first, second = (_decibels(part.mean()).item() if len(part) else None for part in _apart(errors, mask))
    return first, second


def _apart(values: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """The (N,) values of the masked and of the unmasked patches."""
    masked = torch.zeros(len(values), dtype=torch.bool) if mask is None else _check_mask(mask, len(values))
    return values[masked], values[~masked]


def _share(values: Tensor) -> float | None:
    return values.double().mean().item() if len(values) else None


def _assign(targets: Tensor, candidates: Tensor) -> Tensor:
    """(N,) the one-to-one choice of candidates with the least total squared distance to the (N, D) targets."""
    # differences, not |a|² + |b|² − 2ab: that cancels, and near-copies would be matched at random
    distances = torch.cdist(targets, candidates, compute_mode="donot_use_mm_for_euclid_dist").square()
    _, assignment = linear_sum_assignment(distances.cpu().numpy())
    return torch.from_numpy(assignment).to(targets.device)


def _decibels(error: Tensor) -> Tensor:
    return (-10 * error.log10()).clamp(max=CEILING)


def _blur(x: Tensor) -> Tensor:
    """Gaussian-weighted means over every 11×11 window inside (..., H, W)."""
    weights = torch.exp(-0.5 * (torch.arange(-5, 6, dtype=x.dtype, device=x.device) / 1.5) ** 2)
    weights = weights / weights.sum()
    planes = x.reshape(-1, 1, *x.shape[-2:])  # colours apart
    planes = F.conv2d(F.conv2d(planes, weights.view(1, 1, 11, 1)), weights.view(1, 1, 1, 11))
    return planes.view(*x.shape[:-2], *planes.shape[-2:])


def _pictures(original: Tensor, reconstruction: Tensor, dims: tuple[int, ...] = (3, 4)) -> tuple[Tensor, Tensor]:
    """Both in float64, or the reason why they cannot be compared."""
    if original.shape != reconstruction.shape:
        raise InputError(
            f"pictures of shape {tuple(original.shape)} and reconstructions of shape {tuple(reconstruction.shape)} do "
            "not pair up: every original needs one reconstruction of its size"
        )
    if original.ndim not in dims or original.shape[-3] != 3 or original.numel() == 0:
        shapes = " or ".join({3: "(3, H, W)", 4: "(B, 3, H, W)"}[n] for n in dims)
        raise InputError(f"pictures must be RGB of shape {shapes}, not {tuple(original.shape)}")
    for name, picture in (("original", original), ("reconstruction", reconstruction)):
        if not picture.isfinite().all():
            raise InputError(f"the {name} has values that are not finite: it cannot be scored")
    return original.double(), reconstruction.double()


def _check_mask(mask: Tensor, cells: int) -> Tensor:
    if mask.dtype != torch.bool or mask.shape != (cells,):
        raise InputError(f"mask must be bool of shape ({cells},), one entry per patch, not {tuple(mask.shape)}")
    return mask


def _size(pictures: Tensor) -> str:
    return f"{pictures.shape[-2]}x{pictures.shape[-1]}"
