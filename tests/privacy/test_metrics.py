"""Metrics of a reconstruction, against scikit-image and figures worked out by hand."""

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
import torch
from skimage.metrics import peak_signal_noise_ratio, structural_similarity
from torch import Tensor

from mjp.common.errors import InputError
from mjp.method.plan import plan_from_mask
from mjp.method.shuffle import shuffle_image
from mjp.privacy.metrics import (
    CEILING,
    best_permutation_psnr,
    exact_patches,
    fft2d,
    match_batch,
    mse,
    patch_psnr,
    psnr,
    recovered_share,
    score,
    ssim,
)


def picture(seed: int, size: int = 64, batch: int | None = None) -> Tensor:
    """Smooth colour fields with some noise, in [0, 1]: closer to a photograph than noise alone."""
    draws = torch.Generator().manual_seed(seed)
    coarse = torch.rand(batch or 1, 3, 6, 6, generator=draws)
    fine = torch.nn.functional.interpolate(coarse, (size, size), mode="bicubic")
    images = (fine + 0.1 * torch.randn(fine.shape, generator=draws)).clamp(0, 1)
    return images if batch else images[0]


def theirs(image: Tensor) -> np.ndarray:
    return image.double().permute(1, 2, 0).numpy()


def test_mse_and_psnr_by_hand() -> None:
    dark, grey = torch.zeros(3, 16, 16), torch.full((3, 16, 16), 0.1)
    assert mse(dark, grey).item() == pytest.approx(0.01)
    assert psnr(dark, grey).item() == pytest.approx(20.0)


@pytest.mark.parametrize("size", [11, 32, 224])
def test_psnr_and_ssim_are_scikit_images(size: int) -> None:
    a, b = picture(0, size), picture(1, size)
    for other in (b, (0.9 * a + 0.1 * b), a):
        structure = structural_similarity(
            theirs(a),
            theirs(other),
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
            data_range=1,
            channel_axis=-1,
        )
        assert ssim(a, other).item() == pytest.approx(float(structure), abs=1e-10)
        if other is not a:
            ratio = peak_signal_noise_ratio(theirs(a), theirs(other), data_range=1)
            assert psnr(a, other).item() == pytest.approx(float(ratio), abs=1e-10)


@pytest.mark.parametrize("metric", [mse, psnr, ssim, fft2d])
def test_a_batch_is_its_pictures_one_by_one(metric: object) -> None:
    assert callable(metric)
    a, b = picture(0, 32, batch=3), picture(1, 32, batch=3)
    together = metric(a, b)
    assert together.shape == (3,)
    assert together.tolist() == pytest.approx([metric(x, y).item() for x, y in zip(a, b, strict=True)])


def test_a_copy_meets_the_ceiling_and_nothing_else_does() -> None:
    a = picture(0, 224)
    a[0, 0, 0] = 1.0
    assert psnr(a, a).item() == CEILING
    nearest = a.clone()
    nearest[0, 0, 0] = torch.nextafter(torch.tensor(1.0), torch.tensor(0.0))
    assert 190 < psnr(a, nearest).item() < CEILING
    exact = a.double() + 1e-8 * torch.randn(a.shape, generator=torch.Generator().manual_seed(0)).double()
    assert psnr(a.double(), exact).item() == pytest.approx(160, abs=0.1)


def test_fft2d_is_the_cosine_of_the_pixels() -> None:
    a, b = picture(0, 48), picture(1, 48)
    cosine = torch.nn.functional.cosine_similarity(a.double().flatten(), b.double().flatten(), dim=0)
    assert fft2d(a, b).item() == pytest.approx(1 - cosine.item(), abs=1e-12)
    assert fft2d(a, 0.3 * a).item() == pytest.approx(0, abs=1e-6)  # blind to brightness
    assert fft2d(a, torch.zeros_like(a)).item() == 1


def test_patches_are_scored_one_by_one_in_reading_order() -> None:
    a = torch.zeros(3, 8, 12)
    b = a.clone()
    b[:, 4:, :4] = 0.1  # row 1, column 0 of a 2×3 grid: 20 dB
    b[:, :4, 8:] = 0.5  # row 0, column 2: 6.02 dB
    found = patch_psnr(a, b, 4)
    assert found.tolist() == pytest.approx([CEILING, CEILING, -20 * math.log10(0.5), 20, CEILING, CEILING])
    b[:, 4:, :4] = 0.099  # just above 20 dB
    assert recovered_share(a, b, 4).item() == pytest.approx(5 / 6)
    assert patch_psnr(a.expand(2, -1, -1, -1), b.expand(2, -1, -1, -1), 4).shape == (2, 6)


def test_best_permutation_undoes_a_shuffle() -> None:
    a = picture(0, 32)
    plan = plan_from_mask(torch.ones(1, 64, dtype=torch.bool), (8, 8), generator=torch.Generator().manual_seed(0))
    shuffled = shuffle_image(a[None], plan, 4)[0]
    assert psnr(a, shuffled).item() < 25
    assert best_permutation_psnr(a, shuffled, 4) == CEILING


def test_best_permutation_moves_masked_patches_only() -> None:
    a = picture(0, 32)
    mask = torch.zeros(64, dtype=torch.bool)
    mask[:20] = True
    plan = plan_from_mask(mask[None], (8, 8), generator=torch.Generator().manual_seed(1))
    shuffled = shuffle_image(a[None], plan, 4)[0]
    assert best_permutation_psnr(a, shuffled, 4) == CEILING > psnr(a, shuffled).item()


def test_best_permutation_is_the_best_of_all() -> None:
    a, b = picture(0, 32), picture(1, 32)
    orders = torch.stack([torch.randperm(4, generator=torch.Generator().manual_seed(n)) for n in range(200)])
    quarters = b.unfold(1, 16, 16).unfold(2, 16, 16).reshape(3, 4, 16, 16)
    best = 0.0
    for order in orders.unique(dim=0):
        moved = quarters[:, order].reshape(3, 2, 2, 16, 16).permute(0, 1, 3, 2, 4).reshape(3, 32, 32)
        best = max(best, psnr(a, moved).item())
    assert len(orders.unique(dim=0)) == 24
    assert best_permutation_psnr(a, b, 16) == pytest.approx(best)


def test_a_batch_is_matched_by_the_least_total_error() -> None:
    originals = picture(0, 16, batch=5)
    order = torch.tensor([3, 0, 4, 1, 2])
    noise = 0.05 * torch.randn(originals.shape, generator=torch.Generator().manual_seed(2))
    match = match_batch(originals, (originals + noise)[order])
    assert order[match].tolist() == [0, 1, 2, 3, 4]


def test_a_score_holds_every_metric_and_is_strict_json() -> None:
    a, b = picture(0, 32), picture(1, 32)
    mask = torch.arange(64) < 10
    found = score(a, b, patch=4, mask=mask, lpips=lambda x, y: 0.25)
    assert found.psnr == psnr(a, b).item()
    assert found.ssim == ssim(a, b).item()
    assert found.lpips == 0.25
    assert found.permuted_psnr == best_permutation_psnr(a, b, 4) > found.psnr
    copy = json.loads(json.dumps(asdict(score(a, a, patch=4)), allow_nan=False))
    assert copy["psnr"] == copy["permuted_psnr"] == CEILING
    assert copy["recovered"] == copy["ssim"] == 1
    assert copy["lpips"] is None


def test_masked_and_unmasked_patches_are_scored_apart() -> None:
    a = picture(0, 32)
    mask = torch.zeros(64, dtype=torch.bool)
    mask[5] = mask[40] = True  # rows 0 and 5 of an 8×8 grid
    b = a.clone()
    b[:, 0:4, 20:24] = (a + torch.where(a < 0.5, 0.1, -0.1))[:, 0:4, 20:24]  # patch 5 off by 0.1, patch 40 a copy
    apart = score(a, b, patch=4, mask=mask)
    assert apart.psnr_masked == pytest.approx(-10 * math.log10(0.01 / 2), abs=1e-4)  # over the pixels of both
    assert apart.psnr_unmasked == CEILING
    assert score(a, b, patch=4, mask=torch.ones(64, dtype=torch.bool)).psnr_unmasked is None
    plain = score(a, b, patch=4)
    assert plain.psnr_masked is None
    assert plain.psnr_unmasked == plain.psnr


def test_a_patch_is_exact_if_no_pixel_is_off_by_half_a_grey_level() -> None:
    a = (picture(0, 16) * 255).round() / 255
    b = a.clone()
    b[0, 0, 0] += 0.6 / 255  # patch 0 of a 4×4 grid
    b[1, 5, 9] += 0.4 / 255  # patch 6
    assert exact_patches(a, b, 4).logical_not().nonzero().flatten().tolist() == [0]
    mask = torch.arange(16) < 2
    apart = score(a, b.clamp(0, 1), patch=4, mask=mask)
    assert (apart.exact, apart.exact_masked, apart.exact_unmasked) == (15 / 16, 0.5, 1.0)
    assert score(a, b.clamp(0, 1), patch=4).exact_masked is None


def test_values_outside_the_range_are_clamped_before_scoring() -> None:
    a = torch.ones(3, 16, 16)
    assert score(a, a + 3, patch=4).psnr == CEILING


@pytest.mark.parametrize("metric", [mse, psnr, ssim, fft2d])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_never_scores(metric: object, bad: float) -> None:
    assert callable(metric)
    a = picture(0, 32)
    b = a.clone()
    b[1, 2, 3] = bad
    with pytest.raises(InputError, match="not finite"):
        metric(a, b)
    with pytest.raises(InputError, match="not finite"):
        score(a, b, patch=4)


def test_missing_pairs_and_wrong_shapes_are_refused() -> None:
    a = picture(0, 32, batch=3)
    with pytest.raises(InputError, match="pair"):
        mse(a, a[:2])
    with pytest.raises(InputError, match="pair"):
        match_batch(a, a[:1])
    with pytest.raises(InputError, match="pair"):
        psnr(a[0], a[:1])  # would broadcast
    with pytest.raises(InputError, match="RGB"):
        psnr(a[:, :1], a[:, :1])
    with pytest.raises(InputError, match="RGB"):
        psnr(a[:0], a[:0])
    with pytest.raises(InputError, match="RGB"):
        score(a, a, patch=4)
    with pytest.raises(InputError, match="divide"):
        score(a[0], a[0], patch=5)
    with pytest.raises(InputError, match="mask"):
        score(a[0], a[0], patch=4, mask=torch.ones(63, dtype=torch.bool))
    with pytest.raises(InputError, match="before normalisation"):
        score(a[0] * 4 - 2, a[0], patch=4)
    with pytest.raises(InputError, match="11 pixels"):
        ssim(a[..., :10], a[..., :10])
