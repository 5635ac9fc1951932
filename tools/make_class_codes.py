"""Write the codes of ImageNet's classes: for each the mean word vector of its names, from the table of a trained model.

    python tools/make_class_codes.py [MODEL]

MODEL has a table of words (--model.text words). Without one, the codes are the principal components of the classifier's
own weights: a control that no language model had a part in. The file goes into the package; models trained with
lite0:classes name it by its hash.
"""

import sys

import torch
from safetensors.torch import save_file
from torch.nn.functional import normalize

import mjp  # noqa: F401  before timm
from mjp.aladin.data.classes import CLASSES, class_names, kinds, kinds_of
from mjp.aladin.model.backbones.lite0 import lite0
from mjp.aladin.model.class_codes import FILE, WIDTH
from mjp.aladin.model.shipped import find_aladin
from mjp.aladin.model.text import PieceTable


def main(name: str | None) -> None:
    table = from_weights() if name is None else from_names(name)
    table = normalize(table - table.mean(0), dim=1) * WIDTH**0.5
    save_file({"codes": table.half().contiguous()}, FILE)
    print(f"{FILE}: {tuple(table.shape)}")


def from_weights() -> torch.Tensor:
    """(classes, WIDTH): what looks alike to the backbone has similar codes."""
    rows = lite0().classifier.weight.detach().double()
    rows = rows - rows.mean(0)
    components = torch.linalg.eigh(rows.T @ rows).eigenvectors.flip(1)[:, :WIDTH]  # largest first
    return (rows @ components).float()


def from_names(name: str) -> torch.Tensor:
    """(classes, WIDTH): what is named alike has similar codes."""
    pieces = find_aladin(name).pieces
    assert isinstance(pieces, PieceTable)

    def vector(text: str) -> torch.Tensor:
        rows = torch.tensor(pieces.tokenizer.encode(text))
        return normalize(pieces.table.weight.detach()[rows].mean(0), dim=0)

    codes = []
    for number in range(CLASSES):
        narrow = sorted(kinds_of(number), key=lambda word: len(kinds()[word]))[:1]  # the closest everyday word
        codes.append(
            normalize(torch.stack([vector(text) for text in [*class_names()[number], *narrow]]).mean(0), dim=0)
        )
    return torch.stack(codes)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
