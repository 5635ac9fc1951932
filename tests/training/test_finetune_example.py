"""The example of fine-tuning in one's own loop learns."""

import runpy
from pathlib import Path


def test_the_example_learns_in_seconds() -> None:
    script = Path(__file__).parents[2] / "examples" / "finetune.py"
    assert runpy.run_path(str(script))["main"]() > 80  # the larger class alone is 60 %
