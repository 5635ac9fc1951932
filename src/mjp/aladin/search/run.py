"""`mjp aladin search` from end to end: open the index, search, draw the contact sheet."""

from pathlib import Path
from typing import Any, NamedTuple

from mjp.aladin.index.neighbours import Engine
from mjp.aladin.search.searcher import check_query, open_index
from mjp.aladin.search.sheet import MAX_PICTURES, contact_sheet, write_sheet
from mjp.aladin.search.table import match_entries, match_table
from mjp.common.errors import InputError
from mjp.common.files import check_folder


class SearchAnswer(NamedTuple):
    """What is printed, and the body of results.json."""

    text: str
    body: dict[str, Any]


def search_and_draw(
    index: Path,
    query: str,
    picture: Path | None,
    *,
    k: int,
    rerank: int,
    explain: bool,
    engine: Engine,
    model: str | None,
    max_pixels: int | None,
    device: str,
    out: Path,
) -> SearchAnswer:
    """Search, and write the contact sheet to `out`/sheet.png."""
    if explain and picture is not None:
        raise InputError("--explain shows the best patch of each word: it needs a query in words")
    check_query(query, picture, k=k, rerank=rerank)
    check_folder(out)
    searcher = open_index(index, model=model, engine=engine, max_pixels=max_pixels, device=device)
    matches = searcher.search(query or None, picture=picture, k=k, rerank=rerank)
    words = {match.id: searcher.explain(query, match.id) or [] for match in matches if explain}
    title = query if picture is None else f"like {picture.name}"
    sheet = contact_sheet(title, matches, words, searcher.index.config.grid, max_pixels=max_pixels)
    out.mkdir(parents=True, exist_ok=True)
    write_sheet(sheet, out / "sheet.png")
    notes = [] if picture is not None else searcher.notes(query)
    first = f", the first {MAX_PICTURES} of {len(matches)}" if len(matches) > MAX_PICTURES else ""
    text = "\n\n".join([match_table(matches, words), *notes, f"sheet    {out / 'sheet.png'}{first}"])
    return SearchAnswer(text, {"query": title, "index": str(index), "found": match_entries(matches, words)})
