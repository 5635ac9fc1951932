"""Make docs/results.md with its pictures and the README's first result from the committed cells of `mjp reproduce`:

    python tools/write_results.py

Cells are in src/mjp/shipped/reproduction/SCALE/cells: put the files of further cells there, and run this again.
"""

import contextlib
import io
import shutil
from pathlib import Path

from mjp.reproduce.command import collect
from mjp.reproduce.committed import HOME
from mjp.reproduce.document import document
from mjp.reproduce.first_result import first_result
from mjp.reproduce.overview import overview
from mjp.reproduce.scale_file import load_scale

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
MARKS = ("<!-- from here to the end mark: python tools/write_results.py -->\n", "<!-- end -->")
ORDER = ("finetune_long", "finetune", "scratch", "finetune_search")
FIGURES = {
    "inference": "Accuracy and consistency over γ at inference; bands are one standard deviation over seeds",
    "convergence": "Validation accuracy after every epoch; bands are one standard deviation over seeds",
    "positions": "Position embeddings in the plane, first seed; red grows with the row, blue with the column",
    "attention": "Attention of the class token in the last block, mean over heads, first seed; a row per picture",
}
INTRODUCTION = """# Results

Which of the paper's claims hold on small networks, with error bars. `python tools/write_results.py` generates this page
from the cells in `src/mjp/shipped/reproduction`, one file for each training run and seed. [Reproduce](reproduce.md)
says how to compute them again, and `mjp report PAGE.html FOLDER` shows them as one page.

These are small networks and small pictures: nothing here was measured on ImageNet itself. The paper's results on
ImageNet-A and ImageNet-O are not tested; `mjp eval` measures them if you have the pictures.

Words:

- γ is the share of patches that are shuffled: in training, at inference, or both. *Points* are percentage points.
- Jigsaw (JP): the patches of some blocks change places among themselves. SPP: all patches are shuffled, and their
  pixels by one permutation.
- E_unk: one learned position embedding at every shuffled slot. It tells the network which slots were shuffled; *not
  told* means that every slot keeps its own embedding.
- DAL: a loss that makes each position embedding predict its place, through a head that is linear (LN), not linear (NLN)
  or has no parameters (PCA).
- A to J are the paper's variants: A plain, B without position embeddings, C SPP, D DAL, E jigsaw alone, F jigsaw and an
  embedding of the slot index, G jigsaw and E_unk, H to J G with DAL (PCA, LN, NLN). J is MJP.
- Consistency: the share of predictions that the jigsaw does not change, right or wrong. It is measured at γ = .5, as in
  the authors' code; the paper does not state its γ. Diff.Norm: how far the features of a picture move.
"""


def main() -> None:
    bodies, parts = [], []
    for name in ORDER:
        folder = HOME / name
        if (folder / "cells").is_dir():
            with contextlib.redirect_stdout(io.StringIO()):
                results = collect(load_scale(name), folder, {"scale": name})
            (folder / "results.md").unlink()  # it is part of the page
            bodies.append(results.body)
            parts += [document(results.body, level=2), *pictures(name, folder)]
            if name == "finetune_long":
                replace_between_marks(ROOT / "README.md", first_result(results.body))
    (DOCS / "results.md").write_text("\n".join([INTRODUCTION, overview(bodies), *parts]), encoding="utf-8")


def replace_between_marks(path: Path, text: str) -> None:
    before, _, rest = path.read_text(encoding="utf-8").partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    path.write_text(f"{before}{MARKS[0]}{text}{MARKS[1]}{after}", encoding="utf-8")


def pictures(scale: str, folder: Path) -> list[str]:
    """The figures of a scale, copied to the documentation's pictures; dark versions stay with the package."""
    lines = []
    for name, caption in FIGURES.items():
        if (folder / f"{name}.png").is_file():
            target = DOCS / "pictures" / f"{scale}-{name}.png"
            shutil.copyfile(folder / f"{name}.png", target)
            lines.append(f"![{caption}](pictures/{target.name})\n\n*{caption}.*\n")
    return lines


if __name__ == "__main__":
    main()
