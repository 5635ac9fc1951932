"""Transformers over sets of tokens: the two encoders, and the matching head that turns a set into one vector.

None has a positional encoding: a set of patches is the same in any order. Padding is masked. Neither side ever sees the
other, so pictures and texts can be encoded, and stored, separately.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize


def stack(width: int, *, layers: int, heads: int, hidden: int, dropout: float) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(
        width, heads, hidden, dropout, activation="gelu", batch_first=True, norm_first=True
    )
    # nested tensors would be a second way to compute the same thing, taken in eval mode only
    network = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
    for parameter in network.parameters():  # torch copies the first layer: all would start with the same weights
        if parameter.ndim > 1:
            nn.init.xavier_uniform_(parameter)
    return network


def attend(network: nn.Module, cls: Tensor, tokens: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Run a stack over [cls, tokens]: cls (B, D), tokens (B, N, D), valid (B, N)."""
    everything = torch.cat([cls.unsqueeze(1), tokens], 1)
    real = torch.cat([valid.new_ones(len(valid), 1), valid], 1)
    padding = None if real.is_cpu and bool(real.all()) else ~real  # attention without a mask is quicker
    out = network(everything, src_key_padding_mask=padding)
    return out[:, 0], out[:, 1:]


def zero_linear(input_width: int, width: int, *, bias: bool = True) -> nn.Linear:
    """A map that starts at zero: a model that is given one computes what it did before."""
    linear = nn.Linear(input_width, width, bias=bias)
    for parameter in linear.parameters():
        nn.init.zeros_(parameter)
    return linear


class TokenEncoder(nn.Module):
    """Tokens of one modality (`input_width`) into the tokens that are compared (`width`).

    The last `codes` columns of a token are what a classifier says of it: they enter by a map of their own, which starts
    at zero, so that an encoder trained without them can learn to read them.
    """

    def __init__(
        self, input_width: int, width: int, *, layers: int, heads: int, dropout: float, codes: int = 0
    ) -> None:
        super().__init__()
        features = input_width - codes
        self.enter = nn.Sequential(nn.LayerNorm(features), nn.Linear(features, width), nn.Dropout(dropout))
        self.codes = zero_linear(codes, width, bias=False) if codes else None
        self.cls = nn.Parameter(torch.randn(width) * 0.02)  # distinguishes the class token from the others
        self.layers = stack(width, layers=layers, heads=heads, hidden=2 * width, dropout=dropout)

    def forward(self, cls: Tensor, tokens: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        return attend(self.layers, self._entered(cls) + self.cls, self._entered(tokens), valid)

    def _entered(self, tokens: Tensor) -> Tensor:
        if self.codes is None:
            return self.enter(tokens)
        features, codes = tokens.split([tokens.shape[-1] - self.codes.in_features, self.codes.in_features], -1)
        return self.enter(features) + self.codes(codes)


class MatchingHead(nn.Module):
    """The student: class token and tokens (B, N, D) into one vector of length 1, (B, D).

    One stack for both modalities, or one for each.
    """

    def __init__(self, width: int, *, layers: int, heads: int, dropout: float, shared: bool) -> None:
        super().__init__()
        self.pictures = stack(width, layers=layers, heads=heads, hidden=width, dropout=dropout)
        self.texts = None if shared else stack(width, layers=layers, heads=heads, hidden=width, dropout=dropout)

    def forward(self, cls: Tensor, tokens: Tensor, valid: Tensor, *, text: bool) -> Tensor:
        network = self.texts if text and self.texts is not None else self.pictures
        return normalize(attend(network, cls, tokens, valid)[0], dim=-1)
