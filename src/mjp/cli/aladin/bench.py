"""Latency of a search on this machine: encoding the query, search by vector, re-ranking, and exhaustive alignment.

Galleries are random, which does not affect the time; they are written to the temporary folder (1.3 GB for 100,000
pictures with 49 tokens of width 128) and removed. Ratios are of medians: exhaustive alignment (with tokens in memory,
where they fit) over vector search, in scoring alone and end to end with the encoding of the query.

With --pages also what a page of mjp aladin serve costs at so many pictures, as ratios of one run: a query page, naming
matches, cached thumbnails, and indexing a photograph of 12 megapixels.
"""

from dataclasses import dataclass
from pathlib import Path

from mjp.common.results import Results


@dataclass
class Options:
    model: str = "aladin-flickr8k"
    """Folder of a model or of a run of mjp aladin train."""
    sizes: tuple[int, ...] = (1_000, 10_000, 100_000)
    """Numbers of pictures."""
    repeats: int = 10
    """Repetitions of each of eight queries; fewer for the exhaustive search of large galleries."""
    rerank: int = 20
    """How many candidates are re-ranked."""
    pages: int = 300_000
    """Number of pictures for the costs of a page (mjp[serve]; 4 GB in the temporary folder); 0 to skip them."""
    seed: int = 0
    """Seed of the galleries."""
    out: Path = Path("out/aladin-bench")
    """Folder for results.json and latency.png."""


def run(options: Options) -> Results:
    from mjp.aladin.evaluate.charts import draw_latency
    from mjp.aladin.evaluate.latency import measure_latency
    from mjp.aladin.evaluate.serving import measure_serving, serving_text
    from mjp.aladin.evaluate.tables import latency_table
    from mjp.aladin.model.shipped import find_aladin
    from mjp.common.files import check_folder
    from mjp.common.results import write_results

    check_folder(options.out)
    model = find_aladin(options.model)
    latency = measure_latency(model, options.sizes, repeats=options.repeats, rerank=options.rerank, seed=options.seed)
    body = {"models": {options.model: latency}}
    if options.pages:
        latency["serving"] = measure_serving(model, options.pages, repeats=options.repeats, seed=options.seed)
        print(serving_text(latency["serving"]))
    results = write_results(options.out, "aladin bench", options, body)
    draw_latency(latency, options.model, options.out / "latency.png")
    print(f"{latency_table(latency)}\nfigures  {options.out / 'results.json'}\ncurve    {options.out / 'latency.png'}")
    return results
