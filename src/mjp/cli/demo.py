"""The whole tour on the two shipped models and the embedded pictures, in minutes and without a download.

The jigsaw and its guarantees; accuracy and consistency; what the position embeddings have learned; where the class
token looks; what a gradient gives away, plain and under MJP; and one page with all of it.
"""

import time
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Options:
    picture: Path | None = None
    """Your own picture for the jigsaw, the attention maps and the attacks; drawn and embedded ones without."""
    seed: int = 0
    """Seed of everything random."""
    out: Path = Path("out/demo")
    """Folder for the results; the page is report.html in it."""


def run(options: Options) -> None:
    from mjp.cli import attack, eval, jigsaw, report, study
    from mjp.models import SHIPPED

    own = () if options.picture is None else (options.picture,)
    seed, out = options.seed, options.out
    _step("The jigsaw, and what it guarantees")
    jigsaw.run(jigsaw.Options(picture=options.picture, seed=seed, out=out / "jigsaw"))
    _step("Accuracy and consistency under the jigsaw")
    eval.run(eval.Options(SHIPPED, ratios=(0.09, 0.27, 0.5, 0.9), draws=1, seed=seed, workers=0, out=out / "eval"))
    _step("What the position embeddings have learned, and where the class token looks")
    study.run(study.Options(SHIPPED, pictures=own, seed=seed, out=out / "study"))
    _step("What a gradient gives away: naive (direct) and adaptive attacks, plain and MJP")
    for name in SHIPPED:
        defences = ("none", "bf16") if name.endswith("plain") else ("mjp:0.09", "mjp:0.27", "mjp:0.9")
        attacks = ("direct", "span", "subspace")
        folder = out / f"attack-{name.rpartition('-')[2]}"
        attack.run(attack.Options(own, model=name, defences=defences, attacks=attacks, seed=seed, out=folder))
    _step("One page")
    folders = ("eval", "study", "attack-plain", "attack-mjp")
    report.run(report.Options(out / "report.html", tuple(out / name for name in folders)))


_started = time.perf_counter()


def _step(title: str) -> None:
    print(f"\n── {title}  ({time.perf_counter() - _started:.0f} s)", flush=True)
