"""See what MJP does to a picture, and check its guarantees on a real network, in seconds and without a download.

Writes jigsaw.png (what is masked and what the network receives, for several mask ratios γ) and results.json (six
guarantees, and four settings that limit one of them, measured here and now on a randomly initialised model).
"""

from dataclasses import dataclass
from pathlib import Path

from mjp.common.results import Results


@dataclass
class Options:
    picture: Path | None = None
    """Your own picture; default: a synthetic landscape."""
    model: str = "deit_tiny_patch16_224"
    """A timm ViT, randomly initialised: the guarantees do not depend on training."""
    ratio: float = 0.27
    """Mask ratio γ of the checks."""
    seed: int = 0
    """Seed of weights and plans."""
    out: Path = Path("out/jigsaw")
    """Folder for the results."""


def run(options: Options) -> Results:
    from mjp.common.files import check_folder, write_atomically
    from mjp.common.results import write_results
    from mjp.evaluation.jigsaw_demo import demonstrate

    check_folder(options.out)
    poster, guarantees = demonstrate(options.picture, options.model, options.ratio, options.seed)
    for value, meaning in guarantees.values():
        print(f"{value:>10.3g}  {meaning}")
    figures = {name: guarantee.value for name, guarantee in guarantees.items()}
    results = write_results(options.out, "jigsaw", options, figures)
    write_atomically(options.out / "jigsaw.png", poster.save)
    print(f"\npicture  {options.out / 'jigsaw.png'}\nfigures  {options.out / 'results.json'}")
    return results
