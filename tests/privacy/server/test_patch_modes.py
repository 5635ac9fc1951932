"""The modes of a patch: one matrix for small patches, three factors for large ones, the same numbers."""

import pytest
import torch

from clients import prior, tiny
from mjp.privacy.info import UpdateInfo
from mjp.privacy.server import linear
from mjp.privacy.server.view import View
from mjp.privacy.update import Update


def test_one_matrix_and_three_factors_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    network = tiny().eval()
    gradients = {name: torch.ones_like(p) for name, p in network.named_parameters()}
    view = View(Update(gradients, UpdateInfo(size=(32, 32))), network, prior())
    dense = linear.PatchModes(view)
    monkeypatch.setattr(linear, "MAX_DENSE", 0)
    factors = linear.PatchModes(view)
    patches = torch.randn(64, len(dense.values), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert dense.dense is not None
    assert factors.dense is None
    assert torch.allclose(dense.to(patches), factors.to(patches), atol=1e-12)
    assert torch.allclose(dense.back(factors.to(patches)), patches, atol=1e-12)
