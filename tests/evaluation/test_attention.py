"""Attention maps, against a forward pass of timm without its fused kernel."""

import mjp  # isort: skip  before timm: it makes torchvision importable

from typing import Any

import pytest
import timm
import torch
from torch import Tensor

from mjp.evaluation.attention import class_attention


@pytest.mark.parametrize("changes", [{}, {"reg_tokens": 4}, {"qk_norm": True}])
def test_equals_the_weights_that_timm_uses(changes: dict[str, Any]) -> None:
    size: dict[str, Any] = {"img_size": (32, 48), "patch_size": 8, "depth": 2, "embed_dim": 48, "num_heads": 3}
    vit: Any = timm.create_model("vit_tiny_patch16_224", **size, **changes).eval()
    images = torch.randn(2, 3, 32, 48, generator=torch.Generator().manual_seed(0))
    used: list[Tensor] = []
    attention = vit.blocks[-1].attn
    attention.fused_attn = False
    attention.attn_drop.register_forward_hook(lambda _, inputs, output: used.append(output))
    maps = class_attention(mjp.MJP(vit, "paper"), images)
    assert maps.shape == (2, 3, 4, 6)
    assert torch.allclose(maps.flatten(2), used[0][:, :, 0, vit.num_prefix_tokens :], atol=1e-6)


def test_a_model_without_class_token_is_refused() -> None:
    with pytest.raises(mjp.InputError, match="no class token"):
        class_attention(mjp.MJP(timm.create_model("test_resnet"), mjp.variant("A")), torch.zeros(1, 3, 32, 32))


@pytest.mark.parametrize("name", ["vit_small_patch16_rope_224", "beit_base_patch16_224"])
def test_attention_with_rotations_or_biases_is_not_shown_without_them(name: str) -> None:
    size: dict[str, Any] = {"img_size": 32, "patch_size": 8, "depth": 1, "embed_dim": 48, "num_heads": 3}
    with pytest.raises(mjp.InputError, match="attention that is not a plain ViT's"):
        class_attention(mjp.MJP(timm.create_model(name, **size), mjp.variant("A")), torch.zeros(1, 3, 32, 32))


def test_no_hook_is_left_behind() -> None:
    vit: Any = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=1, embed_dim=24, num_heads=2)
    class_attention(mjp.MJP(vit, "paper"), torch.zeros(1, 3, 32, 32))
    assert not vit.blocks[-1].attn._forward_pre_hooks
