"""Find pictures with words, or with a picture.

mjp aladin search pictures.index "a dog on a beach" --explain

mjp aladin search pictures.index --picture dog.jpg

The nearest vectors are found first; the best of them are then sorted by the alignment score, which compares every word
with every patch. With --picture only vectors are compared.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from mjp.common.results import Results


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
    out: Path = Path("out/aladin-search")
    """Folder for results.json and sheet.png."""


def run(options: Options) -> Results:
    from mjp.aladin.search.run import search_and_draw
    from mjp.common.results import write_results

    answer = search_and_draw(**vars(options))
    print(answer.text)
    results = write_results(options.out, "aladin search", options, answer.body)
    print(f"figures  {options.out / 'results.json'}")
    return results
