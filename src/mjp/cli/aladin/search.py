"""Find pictures with words, with a picture, or with both.

mjp aladin search pictures.index "a dog on a beach" --explain

mjp aladin search pictures.index "beach + sunset - people" --since 2024 --paths

mjp aladin search pictures.index "in the snow" --picture dog.jpg

The nearest vectors are found first; the best of them are then sorted by the alignment score, which compares every word
with every patch. With a picture or a minus only vectors are compared.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from mjp.common.results import Results


@dataclass
class Options:
    index: tyro.conf.Positional[str]
    """Folder of the index, or qdrant:URL/NAME for what mjp aladin push has sent there."""
    query: tyro.conf.Positional[str] = ""
    """What to look for, in words."""
    picture: Path | None = None
    """What to look for, as a picture; with a query both count."""
    k: Annotated[int, tyro.conf.arg(aliases=["-k"])] = 10
    """How many pictures to show."""
    offset: int = 0
    """How many of the best matches to skip."""
    folder: Path | None = None
    """Only pictures in this folder and those below it."""
    since: str | None = None
    """Only pictures taken since then: 2026, 2026-05, 2026-05-17, or 7d and 2w for days and weeks ago. Of a file that
    does not say when it was taken, the time of its last change counts."""
    until: str | None = None
    """Only pictures taken until then, that day, month or year included."""
    added_since: str | None = None
    """Only pictures that were added to the index since then."""
    sort: Literal["score", "date"] = "score"
    """Order of the pictures to show: the best first, or the newest first."""
    rerank: int = 20
    """How many of the nearest to sort by the alignment score; 0 for none."""
    explain: bool = False
    """Show the best patch of each word, in the table and on the contact sheet."""
    engine: Literal["exact", "ivf", "hnsw"] = "exact"
    """Compare with every vector, or approximately with faiss (mjp[faiss]), for millions of pictures."""
    model: str | None = None
    """Folder of the model; default: the one that made the index."""
    max_pixels: int | None = None
    """Skip pictures with more pixels; default: 100 million, or the environment variable MJP_MAX_PIXELS."""
    device: str = "auto"
    """auto, cpu, cuda, ..."""
    paths: bool = False
    """Print the paths of the pictures and nothing else, one on a line, and write nothing: for pipes."""
    null: Annotated[bool, tyro.conf.arg(aliases=["-0"])] = False
    """With --paths, end paths with a zero byte instead of a line, for xargs -0."""
    out: Path = Path("out/aladin-search")
    """Folder for results.json and sheet.png."""


def run(options: Options) -> Results:
    from mjp.aladin.search.run import print_paths, read_options, search_and_draw
    from mjp.common.results import make_results, write_results

    request, settings = read_options(vars(options))
    if options.paths:
        body = print_paths(request, null=options.null, **settings)
        return make_results("aladin search", options, body)
    answer = search_and_draw(request, explain=options.explain, out=options.out, **settings)
    print(answer.text)
    results = write_results(options.out, "aladin search", options, answer.body)
    print(f"figures  {options.out / 'results.json'}")
    return results
