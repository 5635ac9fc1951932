"""Colours of the page by the formula of WCAG 2: text needs 4.5 : 1 (AA) on what it stands on, lines of tables 3 : 1."""

import re

import pytest

from mjp.common.style import page_css

CSS = page_css()
LIGHT, DARK, PRINT = (
    dict(re.findall(r"--(\w+): (#\w+)", block)) for block in re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
)


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    channels = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    bright, dim = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def test_the_formula_on_known_pairs() -> None:
    assert contrast("#000000", "#fff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)  # the grey that just fails


@pytest.mark.parametrize("scheme", [LIGHT, DARK, PRINT], ids=["light", "dark", "print"])
@pytest.mark.parametrize("ground", ["paper", "card"])
@pytest.mark.parametrize(("ink", "least"), [("ink", 7), ("quiet", 4.5), ("link", 4.5), ("rule", 3)])
def test_text_can_be_read(scheme: dict[str, str], ground: str, ink: str, least: float) -> None:
    assert contrast(scheme[ink], scheme[ground]) >= least


def test_no_other_colour_is_used() -> None:
    """All colours but the white card of the pictures go through the variables that are tested above."""
    rest = re.sub(r":root \{.*?\}", "", CSS, flags=re.DOTALL)
    assert re.findall(r"#[0-9a-f]{3,8}\b", rest) == ["#fff"]
