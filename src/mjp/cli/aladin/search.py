"""Find pictures with words, or with a picture.

mjp aladin search pictures.index "a dog on a beach" --explain

mjp aladin search pictures.index --picture dog.jpg

The nearest vectors are found first; the best of them are then put in the order of the alignment score, which compares
every word with every patch. With --picture only vectors are compared.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

if TYPE_CHECKING:
    from mjp.aladin.search.explain import Word
    from mjp.aladin.search.two_stage import Found


@dataclass
class Options:
    index: tyro.conf.Positional[Path]
    """Folder of the index."""
    query: tyro.conf.Positional[str] = ""
    """What to look for, in words."""
    picture: Path | None = None
    """What to look for, as a picture."""
    k: Annotated[int, tyro.conf.arg(aliases=["-k"])] = 10
    """How many pictures to show."""
    rerank: int = 20
    """How many of the nearest to put in the order of the alignment score; 0 for none."""
    explain: bool = False
    """Show the patch that each word chose, in the table and on the contact sheet."""
    engine: Literal["exact", "ivf", "hnsw"] = "exact"
    """Compare with every vector, or approximately by faiss (mjp[faiss]), for millions of pictures."""
    model: str | None = None
    """Folder of the model; by default the one that made the index."""
    device: str = "auto"
    """auto, cpu, cuda, ..."""
    out: Path = Path("out/aladin-search")
    """Folder for results.json and sheet.png."""


def run(options: Options) -> None:
    from mjp.aladin.index.store import Index
    from mjp.aladin.model.shipped import find_aladin
    from mjp.aladin.model.text import unknown_words
    from mjp.aladin.search.explain import explain, unread_words
    from mjp.aladin.search.sheet import MOST, contact_sheet, save_sheet
    from mjp.aladin.search.two_stage import name_hits, read_picture, read_query, two_stage
    from mjp.common.device import pick_device
    from mjp.common.files import check_folder, write_atomically

    _check(options)
    check_folder(options.out)
    index = Index(options.index)
    model = find_aladin(options.model or index.facts.source)[0].to(pick_device(options.device))
    index.check_model(model.hash)
    query = read_picture(index, model, options.picture) if options.picture else read_query(model, options.query)
    rerank = options.rerank if options.picture is None else 0
    hits = two_stage(index, model, query, options.k, rerank, options.engine)[1]
    found = name_hits(index, hits)
    words = {each.id: explain(index, model, options.query, query, each.hit.row) for each in found if options.explain}
    print(_table(found, words))
    if options.query and (unread := unread_words(model, options.query)):
        print(f"\nthe query is too long: its last {unread} words were not read")
    if options.query and (unknown := unknown_words(options.query, model.piece_names)):
        print(f"\nthe model does not know every letter of: {', '.join(unknown)}")
    options.out.mkdir(parents=True, exist_ok=True)
    title = options.query if options.picture is None else f"like {options.picture.name}"
    sheet = contact_sheet(title, found, words, index.facts.grid)
    write_atomically(options.out / "sheet.png", lambda path: save_sheet(sheet, path))
    facts = json.dumps({"query": title, "index": str(options.index), "found": _facts(found, words)}, indent=2)
    write_atomically(options.out / "results.json", lambda path: path.write_text(facts + "\n"))
    first = f", the first {MOST} of {len(found)}" if len(found) > MOST else ""
    print(f"\nsheet    {options.out / 'sheet.png'}{first}\nfigures  {options.out / 'results.json'}")


def _check(options: Options) -> None:
    from mjp.common.errors import InputError

    if bool(options.query) == (options.picture is not None):
        raise InputError("give a query in words, or a picture with --picture, and not both")
    if options.explain and options.picture is not None:
        raise InputError("--explain says which patch each word chose: it needs a query in words")
    if options.k < 1 or options.rerank < 0:
        raise InputError("-k must be at least 1, and --rerank at least 0")


def _table(found: "list[Found]", words: "dict[str, list[Word]]") -> str:
    from mjp.aladin.index.intake import printable

    lines = [f"{'':>4}  {'cosine':>7}  {'rank':>5}  {'alignment':>9}  file"]
    for rank, each in enumerate(found, 1):
        hit = each.hit
        score = "–" if hit.alignment is None else f"{hit.alignment:.3f}"
        where = printable(each.paths[0]) if each.paths else each.id
        more = f"  (and {len(each.paths) - 1} more)" if len(each.paths) > 1 else ""
        lines.append(f"{rank:>4}  {hit.cosine:>7.3f}  {hit.rank:>5}  {score:>9}  {where}{more}")
        if each.id in words:
            chosen = [f"{w.text} {w.score:.2f} @ {'hidden' if w.hidden else w.patch}" for w in words[each.id]]
            lines.append(" " * 34 + ", ".join(chosen))
    return "\n".join(lines)


def _facts(found: "list[Found]", words: "dict[str, list[Word]]") -> list[dict[str, Any]]:
    from mjp.aladin.index.intake import printable

    facts = []
    for each in found:
        entry = {"id": each.id, "paths": [printable(path) for path in each.paths], **each.hit._asdict()}
        if each.id in words:
            chosen = [(word, None if word.hidden else word.patch) for word in words[each.id]]
            entry["words"] = [{"word": word.text, "score": word.score, "patch": patch} for word, patch in chosen]
        facts.append(entry)
    return facts
