"""The models that come with the package: small, loadable by name, and as good as their cards say."""

import mjp  # isort: skip  before timm: it makes torchvision importable

import json
from importlib.resources import files
from pathlib import Path

import pytest
import timm
import torch

from mjp.common.distributed import World
from mjp.evaluation.batches import batches, find_pictures
from mjp.evaluation.sweep import sweep
from mjp.models import SHIPPED, find_model
from mjp.training.evaluate import Unreadable

HOME = Path(str(files("mjp"))) / "shipped"


@pytest.mark.parametrize("name", SHIPPED)
def test_loads_by_name_small_and_ready(name: str) -> None:
    model = mjp.load(name)
    assert not model.training
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert model.classes is not None
    assert len(model.classes) == 10
    assert sum(path.stat().st_size for path in (HOME / name).iterdir()) <= 5_000_000
    assert find_model(name).name == name


def test_the_pair_differs_only_in_the_method() -> None:
    plain, masked = (json.loads((HOME / name / "config.json").read_text()) for name in SHIPPED)
    assert {key: plain[key] for key in plain if key != "mjp"} == {key: masked[key] for key in masked if key != "mjp"}
    assert (plain["mjp"]["position"], masked["mjp"]["position"]) == ("keep", "unknown")


@pytest.mark.parametrize("name", SHIPPED)
def test_accuracy_on_the_embedded_pictures_agrees_with_the_card(name: str) -> None:
    """The card's figure is of all 10,000 test pictures; the 1,000 embedded ones are some of them."""
    subject, pictures = find_model(name), find_pictures("embedded")
    unreadable = Unreadable(0, World(0, 1, torch.device("cpu")))
    stream = batches(subject, pictures, size=250, limit=None, workers=0, unreadable=unreadable)
    found = sweep(subject.model, stream, [], draws=1, seed=0, device=torch.device("cpu"))
    card = (HOME / name / "README.md").read_text()
    stated = float(card.split("top-1 ")[1].split(" %")[0])
    assert found.top1.low * 100 - 1 < stated < found.top1.high * 100 + 1


def test_an_unknown_name_is_refused_with_the_choices() -> None:
    with pytest.raises(mjp.InputError, match="choose from mini-cifar10-plain, mini-cifar10-mjp"):
        mjp.load("mini-cifar100")


@pytest.mark.parametrize("name", ["resnet10t", "swin_tiny_patch4_window7_224", "deit_tiny_distilled_patch16_224"])
def test_weights_for_another_number_of_classes_build_the_model_they_belong_to(name: str) -> None:
    weights = timm.create_model(name, num_classes=4).state_dict()
    subject = find_model(f"timm:{name}", weights=weights)
    assert subject.model.num_classes == 4
