"""predictions.png: picture, truth and prediction side by side, with the colours and names of the classes."""

import colorsys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mjp.common.charts import pyplot, save_chart
from mjp.segmentation.metrics import IGNORE

GOLDEN = 0.618034  # steps of the golden ratio never bring two hues close together soon
VOID = (0, 0, 0)
LEGEND_COLUMNS = 6


class Example(NamedTuple):
    """A picture, its true classes and the predicted ones, (H, W) each."""

    picture: Image.Image
    truth: NDArray[np.uint8]
    prediction: NDArray[np.uint8]


def palette(classes: int) -> NDArray[np.uint8]:
    """(256, 3): a colour for every class, black for void."""
    colours = np.zeros((256, 3), np.uint8)
    for number in range(classes):
        hue, light = number * GOLDEN % 1, (0.42, 0.58, 0.74)[number % 3]
        colours[number] = [round(255 * part) for part in colorsys.hls_to_rgb(hue, light, 0.6)]
    colours[IGNORE] = VOID
    return colours


def draw_predictions(examples: Sequence[Example], names: Sequence[str], path: Path, title: str) -> None:
    """One row for each example, and a legend of the classes that occur in them."""
    plt = pyplot()
    from matplotlib.patches import Patch

    colours = palette(len(names))
    occurring = np.unique(np.concatenate([part.ravel() for e in examples for part in (e.truth, e.prediction)]))
    entries = {int(number): "void" if number == IGNORE else names[number] for number in occurring}
    figure, axes = plt.subplots(
        len(examples), 3, figsize=(11, 0.8 + 2.9 * len(examples)), layout="constrained", squeeze=False
    )
    for row, example in zip(axes, examples, strict=True):
        for axis, pixels in zip(
            row, (np.asarray(example.picture), colours[example.truth], colours[example.prediction]), strict=True
        ):
            axis.imshow(pixels, interpolation="nearest")
            axis.set_axis_off()
    for axis, heading in zip(axes[0], ("picture", "truth", "prediction"), strict=True):
        axis.set_title(heading)
    handles = [Patch(color=colours[number] / 255, label=name) for number, name in entries.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=LEGEND_COLUMNS, frameon=False)
    figure.suptitle(title)
    save_chart(figure, path, dpi=110)
