"""What a backbone's own classifier makes of every token, as a short code beside the features.

    posterior(x) = softmax(W x + b)              over the classes, of the whole picture or of one cell
    code(x)      = posterior(x) · codes          codes: a word vector for every class, the mean of its names

The features contain the classes already, but a small encoder cannot find them there from a few thousand captions. A
code says them in words: a cell that shows a laptop gets the word vector of “laptop”, one between two classes a vector
between them. The vectors are those of the shipped model's table (tools/make_class_codes.py), initialised from MiniLM.
"""

from importlib.resources import files
from pathlib import Path

import torch
from torch import Tensor, nn

from mjp.common.weights import read_tensors

WIDTH = 128
FILE = Path(str(files("mjp").joinpath("aladin/model/class_codes.safetensors")))


def class_codes() -> Tensor:
    """(classes, WIDTH)."""
    return read_tensors(FILE)["codes"].float()


class ClassCodes(nn.Module):
    """Tokens (..., D) into (..., D + WIDTH)."""

    codes: Tensor

    def __init__(self, classifier: nn.Linear) -> None:
        super().__init__()
        self.classifier = classifier
        self.register_buffer("codes", class_codes())

    @torch.no_grad()
    def forward(self, features: Tensor) -> Tensor:
        return torch.cat([features, self.posterior(features) @ self.codes.to(features.device)], -1)

    @torch.no_grad()
    def posterior(self, tokens: Tensor) -> Tensor:
        """(..., classes) of features, with or without a code behind them."""
        return self.classifier(tokens[..., : self.classifier.in_features]).softmax(-1)
