"""A second channel of both heads: do words and picture mean the same of ImageNet's classes?

picture   code of the whole, and of every patch: posterior of the backbone's classifier · word vectors of the classes
text      word vectors, weighed and mapped to the codes of the classes that they name: “dog” to those of 118 breeds

Codes have length 1 and stand beside the vector and beside the tokens, so that one product compares both channels:

    S = (√(1 − g²) · S_captions + g · S_classes) / √2
    g = LEAST + (MOST − LEAST) · sure · brief

sure    0 for a text whose code resembles no class (“crowd”), 1 for one that names classes, however many (“dog”)
brief   1 for one word that counts, ½ for three, almost 0 for a caption

A noun that names a class is left to the classes; a caption, about the relations of many things, and a word that names
none are left to what captions taught. The text side is fitted to names, definitions and everyday kinds of the classes
in seconds (training/channel.py), without pictures.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from mjp.aladin.model.class_codes import WIDTH, class_codes
from mjp.aladin.model.codes import Codes

# all set after coarse grids on dev: recall of captions, precision on 100 classes, words that name no class
LEAST, MOST = 0.25, 0.97
UNSURE, SURE = 1.6, 3.1  # evidence of a class
BRIEF = 2.0  # further words that count at which classes count half
SCALE = 20.0  # of cosines with codes, here and while the channel is fitted
LOCAL = 0.5
HIDDEN = 512


class Meant(NamedTuple):
    """The classes that texts mean."""

    codes: Tensor  # (C, WIDTH), length 1
    share: Tensor  # (C, 1): g


class ClassChannel(nn.Module):
    """Word vectors (C, L, WIDTH) to codes of classes."""

    classes: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("classes", normalize(class_codes(), dim=1), persistent=False)
        self.weigh = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH // 2), nn.GELU(), nn.Linear(WIDTH // 2, 1)
        )
        self.enter = nn.LayerNorm(WIDTH)
        self.straight = nn.Linear(WIDTH, WIDTH)
        self.bend = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Dropout(0.2), nn.Linear(HIDDEN, WIDTH))
        with torch.no_grad():  # codes of classes are word vectors: a word starts as its own code
            nn.init.eye_(self.straight.weight)
            nn.init.zeros_(self.straight.bias)

    def forward(self, vectors: Tensor, valid: Tensor) -> Meant:
        weights = self.weigh(vectors).masked_fill(~valid.unsqueeze(-1), -torch.inf).softmax(1)  # (C, L, 1)
        counting = 1 / weights.square().sum(1)  # (C, 1): 1 if one word has all the weight, L if all count alike
        codes = self._code((weights * normalize(vectors, dim=-1)).sum(1))
        brief = 1 / (1 + ((counting - 1) / BRIEF) ** 4)
        return Meant(codes, LEAST + (MOST - LEAST) * self._sure(codes) * brief)

    def _sure(self, codes: Tensor) -> Tensor:
        """(C, 1): from 0 to 1. Evidence is summed over classes, so that a word for many of them counts as well."""
        evidence = (SCALE * codes @ self.classes.T).logsumexp(1, keepdim=True) - math.log(len(self.classes))
        return ((evidence - UNSURE) / (SURE - UNSURE)).clamp(0, 1)

    def _code(self, words: Tensor) -> Tensor:
        entered = self.enter(words)
        return normalize(self.straight(entered) + self.bend(entered), dim=-1)


def beside_words(codes: Codes, meant: Meant) -> Codes:
    """Codes of texts with the second channel, the same for all words; lengths stay as they are."""
    rest, share = (1 - meant.share.square()).sqrt(), meant.share
    vector = torch.cat([rest * codes.vector, share * meant.codes], -1)
    lengths = codes.tokens.norm(dim=-1, keepdim=True)
    words = lengths * (share * meant.codes).unsqueeze(1)  # (C, L, WIDTH)
    return codes._replace(vector=vector, tokens=torch.cat([rest.unsqueeze(1) * codes.tokens, words], -1))


def beside_patches(codes: Codes, whole: Tensor, patches: Tensor) -> Codes:
    """Codes of pictures with the second channel; `whole` (B, WIDTH), `patches` (B, R, WIDTH) from ClassCodes.

    A patch says what the whole picture shows, and less loudly what it shows itself: a cell alone is often mistaken.
    """
    whole = normalize(whole, dim=-1)
    local = normalize(whole.unsqueeze(1) + LOCAL * normalize(patches, dim=-1), dim=-1)
    vector = torch.cat([codes.vector, whole], -1) / 2**0.5
    return codes._replace(vector=vector, tokens=torch.cat([codes.tokens, local], -1) / 2**0.5)
