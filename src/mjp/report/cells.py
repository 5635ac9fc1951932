"""Numbers as the page shows them: a value, and beside it its interval or deviation."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

HEADLINE = 0.5  # the γ of the authors' code for consistency and Diff.Norm


class Cell(NamedTuple):
    """A cell of a table."""

    value: str
    spread: str = ""


NOTHING = Cell("–")


def measured(figure: Any, *, scale: float = 1, digits: int = 1) -> Cell:
    """A number, or a mean with the bounds of its interval."""
    if isinstance(figure, int | float):
        return Cell(f"{scale * figure:.{digits}f}")
    mean, low, high = (scale * float(bound) for bound in figure)
    return Cell(f"{mean:.{digits}f}", f"[{low:.{digits}f}, {high:.{digits}f}]")


def percent(figure: Any) -> Cell:
    return measured(figure, scale=100)


def plus_minus(mean: float, deviation: float, digits: int = 2) -> Cell:
    return Cell(f"{mean:.{digits}f}", f"± {deviation:.{digits}f}")


def ratios(model: dict[str, Any]) -> list[float]:
    return sorted({point["ratio"] for point in model["points"]})


def closest(choices: Iterable[float], target: float = HEADLINE) -> float:
    """The choice nearest to the target, the larger of two equally near."""
    return min(choices, key=lambda choice: (abs(choice - target), -choice))


def spread_over(choices: Sequence[float], most: int = 8) -> list[float]:
    """At most `most` of the choices, evenly spaced, the first and the last among them."""
    if len(choices) <= most:
        return list(choices)
    return [choices[round(k * (len(choices) - 1) / (most - 1))] for k in range(most)]


def point(model: dict[str, Any], ratio: float, unknown: bool) -> dict[str, Any] | None:
    """What was measured at one γ, with or without E_unk."""
    return next((p for p in model["points"] if p["ratio"] == ratio and p["unknown"] == unknown), None)


def swept(run: Any) -> dict[str, Any]:
    """The models of a run that were measured under jigsaws; a run may be about robustness alone."""
    return {name: model for name, model in run.models.items() if "robustness" not in model or model.get("points")}


def data_name(text: str | None) -> str:
    if text is None:
        return "the sets named below"
    return "embedded CIFAR-10" if text == "embedded" else text


def pictures_of(text: str, count: int) -> str:
    return f"{count:,} embedded CIFAR-10 pictures" if text == "embedded" else f"{count:,} pictures of {text}"
