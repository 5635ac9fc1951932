"""The fifteen corruptions of ImageNet-C at five severities, for a picture of any size, without its downloads.

`corrupt(picture, name, severity, generator)` is a pure function of a (3, H, W) picture in [0, 1] and a generator. The
recipes and their strengths are the published ones (`severities.py`), written anew with torch; some differ:

frost          ice is drawn here, the original overlays photographs of ice
glass_blur     all pixels of a round trade places at once, the original goes from pixel to pixel
fog, snow      other clouds and flakes of the same law

so an error on generated corruptions is no ImageNet-C figure: compare it with models that were measured alike.
"""

from collections.abc import Callable
from io import BytesIO

import torch
from PIL import Image
from torch import Generator, Tensor

from mjp.common.errors import InputError
from mjp.evaluation.robustness.filters import convolve, disk, gaussian_blur, plasma, trail, warped, zoomed
from mjp.evaluation.robustness.severities import CORRUPTIONS, SEVERITIES, parameters
from mjp.pictures.decode import decode_rgb
from mjp.pictures.tensors import to_image, to_tensor

SMALLEST = 8  # pixels: less is no picture, and has no neighbourhood to blur


def corrupt(picture: Tensor, name: str, severity: int, generator: Generator) -> Tensor:
    """The corrupted picture, (3, H, W) in [0, 1]."""
    if name not in CORRUPTIONS:
        raise InputError(f"there is no corruption {name!r}: choose from {', '.join(CORRUPTIONS)}")
    if severity not in SEVERITIES:
        raise InputError(f"a severity is 1, 2, 3, 4 or 5, not {severity!r}")
    if picture.dim() != 3 or len(picture) != 3 or min(picture.shape[1:]) < SMALLEST or not picture.is_floating_point():
        raise InputError(
            f"a picture to corrupt is (3, H, W) in [0, 1] with sides of at least {SMALLEST}, not {picture.dtype} "
            f"{tuple(picture.shape)}"
        )
    strength = parameters(name, severity, min(picture.shape[1:]))
    return RECIPES[name](picture, generator, *strength).clamp(0, 1)


# noise


def gaussian_noise(x: Tensor, generator: Generator, deviation: float) -> Tensor:
    return x + deviation * torch.randn(x.shape, generator=generator)


def shot_noise(x: Tensor, generator: Generator, photons: float) -> Tensor:
    return torch.poisson(x * photons, generator=generator) / photons


def impulse_noise(x: Tensor, generator: Generator, share: float) -> Tensor:
    """Salt and pepper, on every channel for itself."""
    dice = torch.rand(x.shape, generator=generator)
    return x.masked_fill(dice < share / 2, 0.0).masked_fill(dice > 1 - share / 2, 1.0)


# blur


def defocus_blur(x: Tensor, _: Generator, radius: float, softness: float) -> Tensor:
    return convolve(x, disk(radius, softness))


def glass_blur(x: Tensor, generator: Generator, sigma: float, reach: float, rounds: float) -> Tensor:
    """Blur, let every pixel take the value of a random neighbour some times, blur again."""
    x, far = gaussian_blur(x, sigma), round(reach)
    height, width = x.shape[1:]
    rows, columns = torch.arange(height).unsqueeze(1), torch.arange(width)
    for _ in range(round(rounds)):
        down, right = torch.randint(-far, far, (2, height, width), generator=generator)
        x = x[:, (rows + down).clamp(0, height - 1), (columns + right).clamp(0, width - 1)]
    return gaussian_blur(x, sigma)


def motion_blur(x: Tensor, generator: Generator, radius: float, sigma: float) -> Tensor:
    return trail(x, radius, sigma, _uniform(generator, -45, 45))


def zoom_blur(x: Tensor, _: Generator, largest: float, number: float) -> Tensor:
    views = zoomed(x, torch.linspace(1, largest, round(number)))
    return (x + views.sum(0)) / (len(views) + 1)


# weather


def snow(
    x: Tensor,
    generator: Generator,
    mean: float,
    deviation: float,
    size: float,
    threshold: float,
    radius: float,
    sigma: float,
    colour: float,
) -> Tensor:
    """A paler picture behind flakes that fall, and the same flakes upside down."""
    flakes = mean + deviation * torch.randn(1, *x.shape[1:], generator=generator)
    flakes = zoomed(flakes, torch.tensor([size]))[0]
    flakes = flakes.masked_fill(flakes < threshold, 0.0).clamp(0, 1)
    flakes = trail(flakes, radius, sigma, _uniform(generator, -135, -45))
    pale = torch.maximum(x, 1.5 * _grey(x) + 0.5)
    return colour * x + (1 - colour) * pale + flakes + flakes.flip(1, 2)


def frost(x: Tensor, generator: Generator, picture: float, ice: float) -> Tensor:
    height, width = x.shape[1:]
    return picture * x + ice * ice_texture(height, width, generator)


def ice_texture(height: int, width: int, generator: Generator) -> Tensor:
    """(3, H, W) window frost, drawn: bright ridges of fractal clouds, crossed by needles, bluish where it is thin."""
    ridges = torch.zeros(height, width)
    for _ in range(3):
        ridges = torch.maximum(ridges, 1 - (2 * plasma(height, width, 1.35, generator) - 1).abs())
    needles = torch.zeros(1, height, width)
    for _ in range(4):
        points = (torch.rand(1, height, width, generator=generator) > 0.97).float()
        length = max(height, width) / 16
        needles += trail(points, length, length, _uniform(generator, 0, 360))
    cover = plasma(height, width, 1.6, generator)
    thickness = (ridges**4 * (0.35 + 0.65 * cover) + 1.2 * needles[0] * cover).clamp(0, 1)
    tint = torch.tensor([0.85, 0.95, 1.0]).view(3, 1, 1)
    return 0.25 * tint**2 + 0.75 * thickness * tint ** (1 - thickness)


def fog(x: Tensor, generator: Generator, thickness: float, decay: float) -> Tensor:
    (height, width), brightest = x.shape[1:], x.max()
    clouds = plasma(height, width, decay, generator)
    return (x + thickness * clouds) * brightest / (brightest + thickness)


def brightness(x: Tensor, _: Generator, more: float) -> Tensor:
    """Raise the value of HSV: hue and saturation stay if the three channels grow by the same factor."""
    value = x.amax(0, keepdim=True)
    raised = (value + more).clamp(max=1)
    return torch.where(value > 0, x * raised / value.clamp(min=1e-6), raised)


# digital


def contrast(x: Tensor, _: Generator, remains: float) -> Tensor:
    mean = x.mean((1, 2), keepdim=True)
    return mean + remains * (x - mean)


def elastic_transform(x: Tensor, generator: Generator, amplitude: float, smoothness: float, reach: float) -> Tensor:
    """Move three points of the picture at random, everything else along with them, then every pixel a little."""
    height, width = x.shape[1:]
    here = torch.stack(torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")).float()  # (2, H, W)
    shifts = 2 * torch.rand(2, height, width, generator=generator) - 1
    there = here + amplitude * gaussian_blur(shifts, smoothness, truncate=3)
    back = _random_affine(height, width, reach, generator)  # (2, 3)
    rows, columns = (back[:, :2] @ there.flatten(1) + back[:, 2:]).view(2, height, width)
    return warped(x, rows, columns)


def pixelate(x: Tensor, _: Generator, share: float) -> Tensor:
    height, width = x.shape[1:]
    coarse = to_image(x).resize((int(width * share), int(height * share)), Image.Resampling.BOX)
    return to_tensor(coarse.resize((width, height), Image.Resampling.BOX))


def jpeg_compression(x: Tensor, _: Generator, quality: float) -> Tensor:
    file = BytesIO()
    to_image(x).save(file, "JPEG", quality=round(quality))
    return to_tensor(decode_rgb(file.getvalue()))


Recipe = Callable[..., Tensor]  # (picture, generator, *the corruption's row of the table)
RECIPES: dict[str, Recipe] = {
    recipe.__name__: recipe
    for recipe in (
        gaussian_noise,
        shot_noise,
        impulse_noise,
        defocus_blur,
        glass_blur,
        motion_blur,
        zoom_blur,
        snow,
        frost,
        fog,
        brightness,
        contrast,
        elastic_transform,
        pixelate,
        jpeg_compression,
    )
}


def _uniform(generator: Generator, low: float, high: float) -> float:
    return low + (high - low) * torch.rand((), generator=generator).item()


def _grey(x: Tensor) -> Tensor:
    """(1, H, W) luma."""
    return (torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1) * x).sum(0, keepdim=True)


def _random_affine(height: int, width: int, reach: float, generator: Generator) -> Tensor:
    """(2, 3) map from a (row, column) of the new picture to one of the old: three points move by up to `reach`."""
    middle, arm = torch.tensor([height // 2, width // 2]), min(height, width) // 3
    old = middle + arm * torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
    new = old + reach * (2 * torch.rand(3, 2, generator=generator) - 1)
    return torch.linalg.solve(torch.cat([new, torch.ones(3, 1)], 1), old).T
