"""The API reference is complete: every public name is on its page and has a docstring."""

import importlib
from pathlib import Path

import pytest

PAGES = Path(__file__).parent.parent / "docs" / "api"


@pytest.mark.parametrize(
    ("package", "page"),
    [("mjp", "mjp"), ("mjp.privacy", "privacy"), ("mjp.federated", "federated"), ("mjp.aladin", "aladin")],
)
def test_every_public_name_is_documented(package: str, page: str) -> None:
    module = importlib.import_module(package)
    names = [name for name in module.__all__ if not name.startswith("_")]
    assert names
    text = (PAGES / f"{page}.md").read_text()
    assert [name for name in names if f".{name}\n" not in text + "\n"] == []
    assert [name for name in names if not (getattr(module, name).__doc__ or "").strip()] == []


def test_lines_of_markdown_are_short() -> None:
    root = PAGES.parent.parent
    pages = [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
    long = [
        f"{page.name}:{number}"
        for page in pages
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if len(line) > 120 and not line.startswith("|") and "](" not in line  # tables and links cannot be broken
    ]
    assert long == []
