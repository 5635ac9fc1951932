"""Corruptions at five severities, for a picture of any size, without a download.

A corruption is one file here, NAME.py, with

    STRENGTHS                                   what is tuned, at severity 1 to 5, for small and large pictures
    corrupt(picture, generator, *strength)      a pure function of a (3, H, W) picture in [0, 1]

The fifteen of ImageNet-C follow the published recipes and strengths (Hendrycks and Dietterich, ICLR 2019), written anew
with torch; the files say where they differ. An error on generated corruptions is therefore not an ImageNet-C figure:
compare it with models that were measured alike. Names come from the files, so that the help needs no torch.
"""

from pkgutil import iter_modules

from mjp.evaluation.robustness.strengths import SEVERITIES

IMAGENET_C = (
    *("gaussian_noise", "shot_noise", "impulse_noise"),
    *("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "frost", "fog", "brightness"),
    *("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
)


def find_corruptions() -> tuple[str, ...]:
    """Those of ImageNet-C in their usual order, then the others by name."""
    return (*IMAGENET_C, *sorted({module.name for module in iter_modules(__path__)} - set(IMAGENET_C)))


CORRUPTIONS = find_corruptions()

__all__ = ["CORRUPTIONS", "IMAGENET_C", "SEVERITIES"]
