"""The corruptions against libraries that nobody here wrote, and what all of them must keep."""

import mjp  # isort: skip  before timm: it makes torchvision importable

import importlib
import math
from collections.abc import Callable
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.colors import hsv_to_rgb, rgb_to_hsv
from PIL import Image
from scipy import ndimage
from torch import Tensor

from mjp.evaluation.robustness import corrupt as corrupting
from mjp.evaluation.robustness import corruptions
from mjp.evaluation.robustness.corrupt import corrupt
from mjp.evaluation.robustness.corruptions import (
    CORRUPTIONS,
    IMAGENET_C,
    SEVERITIES,
    elastic_transform,
    fog,
    frost,
    glass_blur,
)
from mjp.evaluation.robustness.filters import convolve, disk, gaussian_blur, plasma, trail, warped, zoomed
from mjp.evaluation.robustness.strengths import Strengths
from mjp.pictures.landscape import landscape
from mjp.pictures.sets import embedded
from mjp.pictures.tensors import to_image, to_tensor


def strengths(name: str) -> Strengths:
    module: Any = importlib.import_module(f"{corruptions.__name__}.{name}")
    return module.STRENGTHS


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def small(count: int, step: int = 37) -> list[Tensor]:
    source = embedded("val")
    return [to_tensor(source.load(k * step)) for k in range(count)]


def large() -> Tensor:
    return landscape(224)[0]


def by_channel(operation: Callable[[Any], Any], picture: Tensor) -> Tensor:
    return torch.from_numpy(np.stack([operation(channel) for channel in picture.numpy()]))


# what holds for every corruption


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_keeps_shape_and_range_and_depends_on_the_generator_alone(name: str) -> None:
    for picture in (small(1)[0], large()[:, :200, :160], large()[:, :8, :8]):
        before = picture.clone()
        for severity in SEVERITIES:
            torch.manual_seed(severity)  # a global state that must not matter
            found = corrupt(picture, name, severity, seeded(3))
            assert found.shape == picture.shape
            assert found.dtype == torch.float32
            assert found.min() >= 0
            assert found.max() <= 1
            assert found.isfinite().all()
            assert torch.equal(found, corrupt(picture, name, severity, seeded(3)))
        assert torch.equal(picture, before)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_black_and_white_pictures_stay_finite(name: str) -> None:
    for picture in (torch.zeros(3, 32, 32), torch.ones(3, 32, 32)):
        assert all(corrupt(picture, name, severity, seeded()).isfinite().all() for severity in SEVERITIES)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_random_corruptions_follow_the_seed_and_the_others_need_none(name: str) -> None:
    picture = small(1)[0]
    same = torch.equal(corrupt(picture, name, 3, seeded(0)), corrupt(picture, name, 3, seeded(1)))
    fixed = ("defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression")
    assert same == (name in fixed)


def squared(found: Tensor, picture: Tensor) -> float:
    return (found - picture).square().mean().item()


def unlike(found: Tensor, picture: Tensor) -> float:
    """1 − correlation: haze that hides a picture need not be far from it in brightness."""
    return 1 - torch.corrcoef(torch.stack([found.flatten(), picture.flatten()]))[0, 1].item()


def by_severity(name: str, pictures: list[Tensor]) -> list[float]:
    distance = unlike if name in ("frost", "fog") else squared
    rows = [
        [distance(corrupt(p, name, s, seeded(k)), p) for k, p in enumerate(pictures)]  # the same dice at each severity
        for s in SEVERITIES
    ]
    return [sum(row) / len(row) for row in rows]


# The published strengths of these two do not rise steadily: glass_blur trades reach for rounds, elastic_transform a
# shift of the whole picture for ripples. Of others two neighbours may be as good as equal, hence the 3 %.
UNEVEN = ("glass_blur", "elastic_transform")


@pytest.mark.parametrize("name", [n for n in CORRUPTIONS if n not in UNEVEN])
def test_severities_take_a_picture_further_and_further_away(name: str) -> None:
    for pictures in (small(24), [large()]):
        distances = by_severity(name, pictures)
        assert all(0.97 * a < b for a, b in pairwise(distances)), distances
        assert distances[0] < distances[2] < distances[4], distances
        assert 0 < 1.4 * distances[0] < distances[4], distances


def test_glass_is_worst_at_the_end() -> None:
    for pictures in (small(24), [large()]):
        distances = by_severity("glass_blur", pictures)
        assert distances[-1] > distances[0]


def test_ripples_grow_from_severity_3_on() -> None:
    """Ripples, measured as what bends a straight edge: the rest of each row after its own mean is taken away."""
    edge = (torch.arange(224) >= 112).float().expand(3, 224, -1)
    rough = []
    for severity in (3, 4, 5):
        places = corrupt(edge, "elastic_transform", severity, seeded(1))[0].sum(1)  # where the edge is, row by row
        rough.append(places.diff().std().item())
    assert rough[0] < rough[1] < rough[2]


@pytest.mark.parametrize(
    ("picture", "name", "severity", "message"),
    [
        (torch.zeros(3, 32, 32), "rain", 1, "there is no corruption 'rain'"),
        (torch.zeros(3, 32, 32), "fog", 6, "a severity is 1, 2, 3, 4 or 5, not 6"),
        (torch.zeros(1, 32, 32), "fog", 1, r"\(3, H, W\)"),
        (torch.zeros(3, 32, 4), "fog", 1, "at least 8"),
        (torch.zeros(3, 32, 32, dtype=torch.uint8), "fog", 1, "torch.uint8"),
    ],
)
def test_bad_input_is_refused(picture: Tensor, name: str, severity: int, message: str) -> None:
    with pytest.raises(mjp.InputError, match=message):
        corrupt(picture, name, severity, seeded())


# the tables


def test_there_are_fifteen_corruptions_of_five_severities() -> None:
    assert CORRUPTIONS == IMAGENET_C
    assert len(CORRUPTIONS) == 15
    for name in CORRUPTIONS:
        rows = strengths(name).small + strengths(name).large
        assert len(rows) == 10
        assert len({len(row) for row in rows}) == 1


def test_a_file_in_the_folder_is_a_corruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One file, no other edit: its name is offered and its function is called at its strength."""
    (tmp_path / "darkness.py").write_text(
        "from mjp.evaluation.robustness.strengths import Strengths\n"
        "STRENGTHS = Strengths(small=((0.5,),) * 5, large=((0.5,),) * 5)\n"
        "def corrupt(x, generator, share):\n    return x * share\n"
    )
    monkeypatch.setattr(corruptions, "__path__", [*corruptions.__path__, str(tmp_path)])
    names = corruptions.find_corruptions()
    assert names == (*IMAGENET_C, "darkness")
    monkeypatch.setattr(corrupting, "CORRUPTIONS", names)
    picture = landscape(32)[0]
    assert torch.equal(corrupt(picture, "darkness", 3, seeded()), picture / 2)


def test_strengths_are_the_published_ones_at_both_sizes_and_lie_between_them_elsewhere() -> None:
    assert strengths("gaussian_noise").at(5, 32) == pytest.approx((0.1,))
    assert strengths("gaussian_noise").at(5, 224) == pytest.approx((0.38,))
    assert strengths("jpeg_compression").at(1, 16) == strengths("jpeg_compression").at(1, 32) == (80,)
    assert strengths("jpeg_compression").at(1, 384) == strengths("jpeg_compression").at(1, 224) == (25,)
    halfway = round(math.sqrt(32 * 224))
    assert strengths("contrast").at(1, halfway)[0] == pytest.approx((0.75 + 0.4) / 2, abs=0.01)


# noise


def test_gaussian_noise_has_the_deviation_of_the_table() -> None:
    grey = torch.full((3, 224, 224), 0.5)
    found = corrupt(grey, "gaussian_noise", 1, seeded()) - grey
    assert found.std().item() == pytest.approx(0.08, rel=0.01)
    assert found.mean().item() == pytest.approx(0, abs=1e-3)
    assert abs(torch.corrcoef(found.flatten(1))[0, 1].item()) < 0.02  # each channel for itself


def test_shot_noise_has_the_variance_of_counted_photons() -> None:
    for value in (0.1, 0.4):
        found = corrupt(torch.full((3, 224, 224), value), "shot_noise", 1, seeded())
        assert found.mean().item() == pytest.approx(value, rel=0.01)
        assert found.var().item() == pytest.approx(value / 60, rel=0.03)


def test_impulse_noise_makes_the_published_share_black_or_white_in_equal_parts() -> None:
    found = corrupt(torch.full((3, 224, 224), 0.5), "impulse_noise", 5, seeded())
    assert (found == 0).float().mean().item() == pytest.approx(0.27 / 2, rel=0.03)
    assert (found == 1).float().mean().item() == pytest.approx(0.27 / 2, rel=0.03)
    assert (found == 0.5).float().mean().item() == pytest.approx(1 - 0.27, rel=0.03)


# blur


@pytest.mark.parametrize("sigma", [0.4, 1.5, 19.52])
def test_gaussian_blur_is_that_of_scipy(sigma: float) -> None:
    picture = large()[:, :40, :56]  # smaller than the widest kernel: mirrored more than once
    theirs = by_channel(lambda channel: ndimage.gaussian_filter(channel, sigma, mode="reflect"), picture)
    torch.testing.assert_close(gaussian_blur(picture, sigma), theirs, atol=2e-6, rtol=0)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_defocus_is_a_convolution_with_a_disk(severity: int) -> None:
    radius, softness = strengths("defocus_blur").large[severity - 1]
    line = np.arange(-16, 17)
    circle = (line[:, None] ** 2 + line**2 <= radius**2).astype(np.float64)
    soft = 2 if radius > 8 else 1
    kernel = ndimage.gaussian_filter(circle / circle.sum(), softness, radius=soft)
    picture = large()
    theirs = by_channel(lambda channel: ndimage.convolve(channel, kernel, mode="reflect"), picture)
    torch.testing.assert_close(corrupt(picture, "defocus_blur", severity, seeded()), theirs, atol=1e-5, rtol=0)


def test_a_disk_that_covers_one_pixel_changes_nothing() -> None:
    picture = small(1)[0]
    torch.testing.assert_close(convolve(picture, disk(0.3, 1e-6)), picture)


@pytest.mark.parametrize(("degrees", "axis", "sign"), [(0, 1, 1), (90, 0, 1), (-90, 0, -1)])
def test_motion_blur_along_an_axis_is_a_correlation_in_one_dimension(degrees: float, axis: int, sign: int) -> None:
    weights = np.exp(-0.5 * (np.arange(13) / 2.5) ** 2)
    kernel = np.zeros(25)
    kernel[12:] = weights / weights.sum()
    picture = large()[:, :60, :60]
    theirs = by_channel(
        lambda channel: ndimage.correlate1d(channel, kernel[::sign], axis=axis, mode="nearest"), picture
    )
    torch.testing.assert_close(trail(picture, 6, 2.5, degrees), theirs, atol=1e-5, rtol=0)


def test_zoom_is_an_affine_map_about_the_middle() -> None:
    picture, factor = large()[:, :61, :61], 1.3
    offset = 30 - 30 / factor
    theirs = by_channel(
        lambda channel: ndimage.affine_transform(channel, np.array([1 / factor] * 2), offset, order=1), picture
    )
    torch.testing.assert_close(zoomed(picture, torch.tensor([factor]))[0], theirs, atol=1e-5, rtol=0)


def test_zoom_blur_is_the_mean_of_the_picture_and_its_magnifications() -> None:
    picture = large()
    views = [zoomed(picture, torch.tensor([1 + 0.01 * k]))[0] for k in range(11)]
    by_hand = (picture + sum(views)) / 12
    torch.testing.assert_close(corrupt(picture, "zoom_blur", 1, seeded()), by_hand, atol=1e-5, rtol=0)


def test_glass_only_moves_pixels_nearby() -> None:
    """With next to no blur every value is one that stood at most one pixel away."""
    picture = torch.arange(32 * 32).view(1, 32, 32).expand(3, -1, -1) / 1024
    found = glass_blur.corrupt(picture, seeded(), 1e-3, 1, 1) * 1024
    source = found[0].round().long()
    rows, columns = source // 32 - torch.arange(32).unsqueeze(1), source % 32 - torch.arange(32)
    assert set(rows.unique().tolist()) == set(columns.unique().tolist()) == {-1, 0}
    assert (rows == -1).float().mean().item() == pytest.approx(0.5, abs=0.05)


# weather


def test_plasma_is_smooth_when_fine_grain_is_weak() -> None:
    def roughness(decay: float) -> float:
        clouds = plasma(64, 48, decay, seeded())
        assert clouds.shape == (64, 48)
        assert (clouds.min().item(), clouds.max().item()) == (0, 1)
        return clouds.diff(n=2, dim=0).abs().mean().item()

    assert roughness(3) < roughness(2) < roughness(1.4)


def test_fog_never_leaves_the_range_and_lifts_black() -> None:
    picture = large()
    found = fog.corrupt(picture, seeded(), 3, 1.4)
    assert found.max() <= picture.max() + 1e-6
    assert fog.corrupt(picture * 0 + torch.eye(224), seeded(), 3, 1.4).mean() > 0.2


def test_snow_falls_downwards_and_upwards_alike() -> None:
    black = torch.zeros(3, 224, 224)
    found = corrupt(black, "snow", 3, seeded())
    torch.testing.assert_close(found, found.flip(1, 2))  # the picture and its half turn have the same flakes
    assert torch.equal(found[0], found[1])


def test_ice_differs_from_draw_to_draw_and_is_bluish() -> None:
    first, second = (frost.ice_texture(96, 64, seeded(k)) for k in (0, 1))
    assert first.shape == (3, 96, 64)
    assert not torch.equal(first, second)
    for ice in (first, second):
        assert 0 <= ice.min() < 0.4
        assert 0.7 < ice.max() <= 1
        assert (ice[2] >= ice[0]).all()


@pytest.mark.parametrize("severity", SEVERITIES)
def test_brightness_raises_the_value_of_hsv(severity: int) -> None:
    more = strengths("brightness").small[severity - 1][0]
    picture = small(1)[0].clone()
    picture[:, 0, 0] = 0  # black has no hue
    hsv = rgb_to_hsv(picture.permute(1, 2, 0).double().numpy())
    hsv[..., 2] = np.clip(hsv[..., 2] + more, 0, 1)
    theirs = torch.from_numpy(hsv_to_rgb(hsv)).permute(2, 0, 1).float()
    torch.testing.assert_close(corrupt(picture, "brightness", severity, seeded()), theirs, atol=1e-5, rtol=0)


# digital


def test_contrast_by_hand() -> None:
    picture = torch.zeros(3, 32, 32)
    picture[0, :16] = 1.0  # mean 0.5
    found = corrupt(picture, "contrast", 2, seeded())  # half the distance from the mean remains
    assert found[0, :16].unique().tolist() == [0.75]
    assert found[0, 16:].unique().tolist() == [0.25]
    assert found[1:].abs().max() == 0


def test_warp_is_that_of_scipy() -> None:
    picture = large()[:, :50, :70]
    rows = torch.rand(50, 70, generator=seeded()) * 70 - 10  # also beyond the edges
    columns = torch.rand(50, 70, generator=seeded(1)) * 90 - 10
    places = np.stack([rows.numpy(), columns.numpy()])
    theirs = by_channel(lambda channel: ndimage.map_coordinates(channel, places, order=1, mode="mirror"), picture)
    torch.testing.assert_close(warped(picture, rows, columns), theirs, atol=1e-4, rtol=0)


def test_affine_map_takes_three_points_to_where_they_were() -> None:
    back = elastic_transform._random_affine(32, 48, 5.0, seeded())
    shift = 5 * (2 * torch.rand(3, 2, generator=seeded()) - 1)
    old = torch.tensor([[26.0, 34.0], [26.0, 14.0], [6.0, 14.0]])
    moved = torch.cat([old + shift, torch.ones(3, 1)], 1)
    torch.testing.assert_close(moved @ back.T, old, atol=1e-4, rtol=0)
    still = elastic_transform._random_affine(32, 48, 0.0, seeded())
    torch.testing.assert_close(still, torch.eye(2, 3), atol=1e-5, rtol=0)


def test_elastic_without_strength_changes_nothing() -> None:
    picture = small(1)[0]
    torch.testing.assert_close(elastic_transform.corrupt(picture, seeded(), 0, 1, 0), picture, atol=1e-5, rtol=0)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_jpeg_and_pixelate_are_pillows(severity: int) -> None:
    picture = large()
    original, file = to_image(picture), BytesIO()
    original.save(file, "JPEG", quality=(25, 18, 15, 10, 7)[severity - 1])
    assert torch.equal(corrupt(picture, "jpeg_compression", severity, seeded()), to_tensor(Image.open(file)))
    side = (134, 112, 89, 67, 56)[severity - 1]
    coarse = original.resize((side, side), Image.Resampling.BOX).resize((224, 224), Image.Resampling.BOX)
    assert torch.equal(corrupt(picture, "pixelate", severity, seeded()), to_tensor(coarse))


def test_eight_bits_survive_the_way_to_pixels_and_back() -> None:
    original = embedded("val").load(5)
    assert to_image(to_tensor(original)).tobytes() == original.tobytes()
