"""The look that every page of this package shares."""

from importlib.resources import files


def page_css() -> str:
    """Colours, type and tables, light and dark."""
    return files("mjp.common").joinpath("page.css").read_text(encoding="utf-8")
