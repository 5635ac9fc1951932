"""How strong the fifteen corruptions of ImageNet-C are: what is tuned, at severity 1 to 5, by size of the picture.

The numbers are those published with ImageNet-C (224 px) and CIFAR-10-C (32 px) by Hendrycks and Dietterich, ICLR 2019.
No torch: the command line takes its names from here.
"""

import math

SEVERITIES = (1, 2, 3, 4, 5)
SMALL, LARGE = 32, 224  # side in pixels that each table is for

# corruption: (severities at 32 px, severities at 224 px)
Row = tuple[float, ...]
TABLE: dict[str, tuple[tuple[Row, ...], tuple[Row, ...]]] = {
    # standard deviation
    "gaussian_noise": (((0.04,), (0.06,), (0.08,), (0.09,), (0.1,)), ((0.08,), (0.12,), (0.18,), (0.26,), (0.38,))),
    # photons that a white pixel receives
    "shot_noise": (((500,), (250,), (100,), (75,), (50,)), ((60,), (25,), (12,), (5,), (3,))),
    # share of values replaced by black or white
    "impulse_noise": (((0.01,), (0.02,), (0.03,), (0.05,), (0.07,)), ((0.03,), (0.06,), (0.09,), (0.17,), (0.27,))),
    # radius of the disk, softness of its edge
    "defocus_blur": (
        ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    ),
    # standard deviation of the blur, reach of a pixel, rounds
    "glass_blur": (
        ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
        ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    ),
    # half the length of the trail, its standard deviation
    "motion_blur": (((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)), ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15))),
    # largest magnification, number of magnifications
    "zoom_blur": (
        ((1.05, 6), (1.1, 11), (1.15, 16), (1.2, 21), (1.25, 26)),
        ((1.1, 11), (1.15, 16), (1.2, 11), (1.24, 13), (1.3, 11)),
    ),
    # mean and deviation of the flakes, their size, threshold, half length and deviation of the trail, share of colour
    "snow": (
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
        (
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
            (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
            (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ),
    ),
    # share of the picture, share of the ice
    "frost": (
        ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
        ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
    ),
    # thickness, smoothness
    "fog": (
        ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
        ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    ),
    # added to the value of HSV
    "brightness": (((0.05,), (0.1,), (0.15,), (0.2,), (0.3,)), ((0.1,), (0.2,), (0.3,), (0.4,), (0.5,))),
    # what remains of the distance from the mean
    "contrast": (((0.75,), (0.5,), (0.4,), (0.3,), (0.15,)), ((0.4,), (0.3,), (0.2,), (0.1,), (0.05,))),
    # in pixels: amplitude and smoothness of the displacements, reach of the affine map (published as shares of 244 px)
    "elastic_transform": (
        ((0, 0, 2.56), (1.6, 6.4, 2.24), (2.56, 1.92, 1.92), (3.2, 1.28, 1.6), (3.2, 0.96, 0.96)),
        ((488, 170.8, 24.4), (488, 19.52, 48.8), (12.2, 2.44, 4.88), (17.08, 2.44, 4.88), (29.28, 2.44, 4.88)),
    ),
    # side of the coarse picture, as a share
    "pixelate": (((0.95,), (0.9,), (0.85,), (0.75,), (0.65,)), ((0.6,), (0.5,), (0.4,), (0.3,), (0.25,))),
    # JPEG quality
    "jpeg_compression": (((80,), (65,), (58,), (50,), (40,)), ((25,), (18,), (15,), (10,), (7,))),
}
CORRUPTIONS = tuple(TABLE)


def parameters(corruption: str, severity: int, side: int) -> Row:
    """The row for a picture of that side: linear in log(side) between the tables, constant beyond them."""
    share = min(max(math.log(side / SMALL) / math.log(LARGE / SMALL), 0.0), 1.0)
    small, large = (table[severity - 1] for table in TABLE[corruption])
    return tuple(a + share * (b - a) for a, b in zip(small, large, strict=True))
