"""What people read about robustness: error rates in percent, and means with 95 % intervals."""

from typing import Any

from mjp.evaluation.robustness.corruptions import CORRUPTIONS
from mjp.evaluation.robustness.metrics import ALEXNET, CorruptionErrors


def corruption_table(name: str, result: CorruptionErrors, source: str, missing: list[str]) -> str:
    """Error rates by corruption and severity, and their means."""
    origin = "generated corruptions, not ImageNet-C" if source == "generated" else source
    head = "".join(f"{severity:>7}" for severity in result.severities)
    lines = [f"{name}: error in % by severity on {result.pictures} pictures, 95 % intervals ({origin})"]
    lines.append(f"{'':<18}{head}    mean")
    for corruption, row in result.errors.items():
        cells = "".join(f"{100 * error:7.1f}" if error is not None else f"{'–':>7}" for error in row)
        mean = result.means.get(corruption)
        lines.append(f"{corruption:<18}{cells}    {mean.percent() if mean else '–'}")
    if result.mce_unnormalised:
        left_out = without(missing)
        over = f"over {result.mce_over} of {len(CORRUPTIONS)} corruptions{left_out}"
        lines.append(f"mean error {result.mce_unnormalised.percent()} % {over}")
        if result.mce:
            over = f"over {len(result.means.keys() & ALEXNET.keys())} of {len(ALEXNET)} corruptions{left_out}"
            lines.append(f"mCE {result.mce.percent()} %, relative to AlexNet on ImageNet-C, {over}")
    elif missing:
        lines.append(f"no mean{without(missing)}")
    return "\n".join(lines) + "\n"


def without(missing: list[str]) -> str:
    """A remark about parts of a data set that were not there."""
    if not missing:
        return ""
    more = ", …" if len(missing) > 3 else ""
    return f", without {len(missing)} missing parts ({', '.join(missing[:3])}{more})"


def natural_line(name: str, figures: dict[str, Any]) -> str:
    shares = f"accuracy {figures['accuracy'].percent()}, AURRA {figures['aurra'].percent()} %"
    return f"{name}: ImageNet-A {shares}{without(figures['missing'])}"


def outlier_line(name: str, figures: dict[str, Any]) -> str:
    return f"{name}: ImageNet-O AUPR {figures['aupr'].percent()} %{without(figures['missing'])}"
