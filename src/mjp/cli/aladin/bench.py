"""Latency of a search on this machine: encoding the query, search by vector, re-ranking, and exhaustive alignment.

Galleries are random, which changes no time; they are written to the temporary folder (1.3 GB for 100,000 pictures with
49 tokens of width 128) and removed. Ratios of medians: exhaustive alignment (with tokens in memory, where they fit)
over vector search, in scoring alone and end to end with the encoding of the query.
"""

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Options:
    model: str = "aladin-flickr8k"
    """Folder of a model or of a run of mjp aladin train."""
    sizes: tuple[int, ...] = (1_000, 10_000, 100_000)
    """Numbers of pictures."""
    repeats: int = 10
    """How often each of eight queries is asked; the exhaustive search of large galleries less often."""
    rerank: int = 20
    """How many candidates are re-ranked."""
    seed: int = 0
    """Seed of the galleries."""
    json: bool = False
    """Print one JSON object and nothing else."""
    out: Path = Path("out/aladin-bench")
    """Folder for results.json."""


def run(options: Options) -> None:
    from mjp.aladin.latency import measure_latency
    from mjp.aladin.shipped import find_aladin
    from mjp.checks import whole
    from mjp.files import write_atomically

    whole("--repeats", options.repeats, least=1)
    whole("--rerank", options.rerank, least=1)
    model, _ = find_aladin(options.model)
    facts = measure_latency(model, options.sizes, repeats=options.repeats, rerank=options.rerank, seed=options.seed)
    text = json.dumps(facts, indent=2)
    options.out.mkdir(parents=True, exist_ok=True)
    write_atomically(options.out / "results.json", lambda path: path.write_text(text + "\n"))
    if options.json:
        print(text)
        return
    print(f"p50/p95 in ms{'':<9}" + "".join(f"{each['pictures']:>20,}" for each in facts["sizes"]))
    for name in ("encode", "search", "rerank", "exhaustive", "exhaustive_in_memory"):
        cells = [each["milliseconds"].get(name) for each in facts["sizes"]]
        shown = ["–" if cell is None else f"{cell['p50']:.2f}/{cell['p95']:.2f}" for cell in cells]
        print(f"{name.replace('_', ' '):<22}" + "".join(f"{cell:>20}" for cell in shown))
    for name in facts["sizes"][0]["ratios"] if facts["sizes"] else ():
        print(f"{name.replace('_', ' ')}: " + ", ".join(f"{each['ratios'][name]:.0f} ×" for each in facts["sizes"]))
    print("index, MB: " + ", ".join(f"{each['index_bytes'] / 1e6:.1f}" for each in facts["sizes"]))
    print(f"\nfigures  {options.out / 'results.json'}")
