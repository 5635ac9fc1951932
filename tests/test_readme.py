"""What the README says is true: its example runs, its tests exist, its links lead somewhere."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_example_runs() -> None:
    blocks: list[str] = re.findall(r"```python\n(.*?)```", README, re.S)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})


def test_the_tests_of_the_guarantees_exist() -> None:
    table = README.split("## Guarantees")[1].split("\n## ")[0]
    defined = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    named: list[str] = re.findall(r"`(test_\w+)`", table)
    assert named
    assert [name for name in named if f"def {name}(" not in defined] == []


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), ROOT / "CONTRIBUTING.md"]:
        targets = [t for t in re.findall(r"\]\(([^)#]+)", page.read_text()) if "://" not in t]
        assert [t for t in targets if not (page.parent / t).exists()] == []
