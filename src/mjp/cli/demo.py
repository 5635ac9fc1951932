"""The whole tour on the two shipped models and the embedded pictures, in minutes and without a download.

The jigsaw and its guarantees; accuracy and consistency; what the position embeddings have learned; where the class
token looks; what a gradient gives away, plain and under MJP; and one page with all of it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mjp.common.results import Results

ATTACKS = ("direct", "span", "subspace", "activations")  # `lattice` needs an extra, and minutes


@dataclass
class Options:
    picture: Path | None = None
    """Your own picture for the jigsaw, the attention maps and the attacks; default: synthetic and embedded ones."""
    seed: int = 0
    """Seed of everything random."""
    out: Path = Path("out/demo")
    """Folder for the results; the page is report.html in it."""


def run(options: Options) -> Results:
    from mjp.common.results import make_results

    began = time.perf_counter()
    parts = {}
    for title, name, command in _tour(options):
        print(f"\n── {title}  ({time.perf_counter() - began:.0f} s)", flush=True)
        parts[name] = command()
    body = {"page": options.out / "report.html", "folders": [options.out / name for name in parts if name != "report"]}
    return make_results("demo", options, body)


def _tour(options: Options) -> list[tuple[str, str, Callable[[], object]]]:
    """Title, folder and command of every part; parts that cannot work are refused when the options are made."""
    from mjp.cli import attack, eval, jigsaw, report, study
    from mjp.models import SHIPPED
    from mjp.reproduce.committed import committed_results

    pictures = () if options.picture is None else (options.picture,)
    seed, out = options.seed, options.out
    jigsaws = jigsaw.Options(options.picture, seed=seed, out=out / "jigsaw")
    sweep = eval.Options(SHIPPED, ratios=(0.09, 0.27, 0.5, 0.9), draws=1, seed=seed, workers=0, out=out / "eval")
    positions = study.Options(SHIPPED, pictures=pictures, seed=seed, out=out / "study")
    attacks = [
        attack.Options(pictures=pictures, model=model, defences=defences, attacks=ATTACKS, seed=seed, out=out / folder)
        for model, defences, folder in (
            (SHIPPED[0], ("none", "bf16"), "attack-plain"),
            (SHIPPED[1], ("mjp:0.09", "mjp:0.27"), "attack-mjp"),
        )
    ]
    folders = (sweep.out, positions.out, *(options.out for options in attacks), *committed_results())
    page = report.Options(out / "report.html", folders)
    return [
        ("The jigsaw, and what it guarantees", "jigsaw", lambda: jigsaw.run(jigsaws)),
        ("Accuracy and consistency under the jigsaw", "eval", lambda: eval.run(sweep)),
        (
            "What the position embeddings have learned, where the class token looks",
            "study",
            lambda: study.run(positions),
        ),
        ("What a gradient gives away without MJP", "attack-plain", lambda: attack.run(attacks[0])),
        ("What a gradient gives away with MJP", "attack-mjp", lambda: attack.run(attacks[1])),
        ("One page", "report", lambda: report.run(page)),
    ]
