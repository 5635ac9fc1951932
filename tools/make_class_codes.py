"""Write the codes of ImageNet's classes: for each the mean word vector of its names, from the table of a trained model.

    python tools/make_class_codes.py MODEL

MODEL has a table of words (--model.text words). The file goes into the package; models trained with lite0:classes name
it by its hash.
"""

import sys

import torch
from safetensors.torch import save_file
from torch.nn.functional import normalize

import mjp  # noqa: F401  before timm
from mjp.aladin.data.classes import CLASSES, class_names, kinds, kinds_of
from mjp.aladin.model.class_codes import FILE
from mjp.aladin.model.shipped import find_aladin
from mjp.aladin.model.text import PieceTable


def main(name: str) -> None:
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
    table = torch.stack(codes)
    table = normalize(table - table.mean(0), dim=1) * table.shape[1] ** 0.5
    save_file({"codes": table.half().contiguous()}, FILE)
    print(f"{FILE}: {tuple(table.shape)}")


if __name__ == "__main__":
    main(sys.argv[1])
