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


class TokenEncoder(nn.Module):
    """Tokens of one modality (`input_width`) into the tokens that are compared (`width`)."""

    def __init__(self, input_width: int, width: int, *, layers: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.enter = nn.Sequential(nn.LayerNorm(input_width), nn.Linear(input_width, width), nn.Dropout(dropout))
        self.cls = nn.Parameter(torch.randn(width) * 0.02)  # distinguishes the class token from the others
        self.layers = stack(width, layers=layers, heads=heads, hidden=2 * width, dropout=dropout)

    def forward(self, cls: Tensor, tokens: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        return attend(self.layers, self.enter(cls) + self.cls, self.enter(tokens), valid)


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
