"""The class channel learns names and kinds, and leaves the rest of the model as it was."""

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn
from torch.nn.functional import normalize

from aladin.tiny import WIDTH as FEATURES
from aladin.tiny import tokens
from mjp.aladin.data.classes import CLASSES, class_number
from mjp.aladin.evaluate.seeds import training_of
from mjp.aladin.model import saved_backbone
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.class_codes import WIDTH, ClassCodes
from mjp.aladin.model.config import AladinConfig
from mjp.aladin.model.reference import load_reference, save_reference
from mjp.aladin.model.text import PieceTable
from mjp.aladin.model.tokenizer import train_tokenizer
from mjp.aladin.model.vision import Vision
from mjp.aladin.training import channel
from mjp.aladin.training.channel import fit, train_channel, with_channel
from mjp.aladin.training.config import config_from
from mjp.common.errors import InputError

NAMES = ["tabby", "laptop", "pizza", "pug"]


def vision(name: str = "tiny", size: int | None = None) -> Vision:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return Vision("tiny", nn.Flatten(), (8, 8), (0.5,), (0.5,), ClassCodes(nn.Linear(FEATURES, CLASSES)))


def saved(folder: Path, **changes: Any) -> Aladin:
    """A model with a table in which a class's name is the class's code, as codes are made."""
    config = AladinConfig(
        **{"backbone": "lite0:classes", "text": "words", "width": 16, "heads": 2, "layers": 1, **changes}
    )
    tokenizer = train_tokenizer(["a photo of the picture"] * 2, 100, words=NAMES)
    table = PieceTable(tokenizer, WIDTH)
    codes = vision().classes.codes  # type: ignore[union-attr]
    for name in NAMES:
        table.table.weight.data[tokenizer.encode(name)[0]] = codes[class_number(name) or 0]
    Aladin(config, vision().identity(), FEATURES + WIDTH, table).save(folder)
    return Aladin.load(folder)


@pytest.fixture(autouse=True)
def _tiny_backbone(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (saved_backbone, channel):
        monkeypatch.setattr(module, "find_backbone", vision)
    monkeypatch.setattr(Vision, "width", property(lambda self: FEATURES + WIDTH))


def test_fitting_finds_the_classes_and_changes_nothing_else(tmp_path: Path) -> None:
    base = saved(tmp_path / "base")
    model = with_channel(base)
    before = {name: value.clone() for name, value in model.state_dict().items() if not name.startswith("channel.")}
    first = fit(model, torch.Generator().manual_seed(0), steps=2)
    last = fit(model, torch.Generator().manual_seed(0), steps=25)
    assert last < first
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())
    assert model.channel is not None
    words = model.words(NAMES)
    with torch.no_grad():
        said = model.channel(model.word_vectors(words), words.valid).codes
    nearest = (said @ normalize(vision().classes.codes, dim=1).T).argmax(1)  # type: ignore[union-attr]
    assert nearest.tolist() == [class_number(name) for name in NAMES]


def test_the_command_saves_a_model_whose_codes_are_wider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "fit", lambda model, generator: 0.0)
    saved(tmp_path / "base")
    save_reference(torch.ones(3, 16), tmp_path / "base")
    folder = train_channel(config_from({"phase": "classes", "init": tmp_path / "base", "out": tmp_path / "run"}))
    assert training_of(folder) == training_of(tmp_path / "run")
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["phase"] == "classes"
    assert load_reference(folder) is not None
    model = Aladin.load(folder)
    given = tokens()
    wide = given._replace(
        cls=torch.cat([given.cls, given.cls.new_ones(3, WIDTH)], -1),
        patches=torch.cat([given.patches, given.patches.new_ones(3, 5, WIDTH)], -1),
    )
    pictures, texts = model.codes(wide), model.encode_texts(["a photo of the laptop"])
    assert pictures.vector.shape[-1] == texts.vector.shape[-1] == model.code_widths[0] == 16 + WIDTH
    assert pictures.tokens.shape[-1] == texts.tokens.shape[-1] == model.code_widths[1]


def test_it_needs_a_trained_model() -> None:
    with pytest.raises(InputError, match="--init"):
        train_channel(config_from({"phase": "classes"}))
