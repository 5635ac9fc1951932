"""A model of every kind of position, on a grid of 4x4: what each promises is tested over all of them."""

from collections.abc import Callable
from typing import Any

import timm
from timm.layers import RotaryEmbeddingMixed
from torch import Tensor, nn

import mjp
from method.tiny import SMALL_VIT, awake, generator, gradients, vit

Make = Callable[[], Any]


def small(name: str = "vit_small_patch16_rope_224", **changes: Any) -> Any:
    """A model of two layers on a grid of 4x4."""
    return awake(timm.create_model(name, **{**SMALL_VIT, **changes}))


def naflex(name: str = "naflexvit_base_patch16_gap", **changes: Any) -> Any:
    arguments = {name: value for name, value in SMALL_VIT.items() if name != "img_size"}
    return awake(timm.create_model(name, **{**arguments, "pos_embed_grid_size": (4, 4), **changes}))


ROTARY: dict[str, Make] = {
    "rotations": small,
    "rotations and table": lambda: small("eva02_tiny_patch14_224"),
    "rope with table": lambda: small("vit_small_patch16_rope_ape_224"),
    "mixed": lambda: small("vit_small_patch16_rope_mixed_224"),
    "mixed with table": lambda: small("vit_small_patch16_rope_mixed_ape_224"),
    "dinov3": lambda: small("vit_small_patch16_dinov3"),
    "dinov3, its own sizes": lambda: small("vit_small_patch16_dinov3", dynamic_img_size=True),
    "rotations, registers": lambda: small(num_reg_tokens=2),
    "rotations, attention pooling": lambda: small("vit_pe_core_tiny_patch16_384"),
    "deepseek": lambda: small("deepseek_vit_412m"),
    "naflex, rotations": lambda: naflex(rope_type="axial", pos_embed="none"),
    "naflex, mixed with table": lambda: naflex(rope_type="mixed"),
    "naflex, dinov3": lambda: naflex(rope_type="dinov3", rope_rotate_half=True, class_token=True),
    "qwen3": lambda: small("qwen3_vit_88m", pos_embed_grid_size=4),
    "qwen3, resampled": lambda: small("qwen3_vit_88m", pos_embed_grid_size=6),
}
RELATIVE: dict[str, Make] = {
    "beit": lambda: small("beit_base_patch16_224"),
    "beit with table": lambda: small("beit_base_patch16_224", use_abs_pos_emb=True),
    "beit, shared": lambda: small("beit_base_patch16_224", use_rel_pos_bias=False, use_shared_rel_pos_bias=True),
    "beit, shared and of each block": lambda: small("beit_base_patch16_224", use_shared_rel_pos_bias=True),
    "relpos": lambda: small("vit_relpos_base_patch16_224", rel_pos_type="bias"),
    "relpos, class token": lambda: small("vit_relpos_base_patch16_cls_224", rel_pos_type="bias"),
    "relpos, network": lambda: small("vit_relpos_base_patch16_224"),
    "relpos, network and class token": lambda: small("vit_relpos_base_patch16_clsgap_224"),
    "relpos, norm behind": lambda: small("vit_relpos_base_patch16_rpn_224"),
    "relpos, shared": lambda: small("vit_srelpos_small_patch16_224"),
}
TABLES: dict[str, Make] = {
    "vit": vit,
    "distilled": lambda: vit("deit_tiny_distilled_patch16_224"),
    "eva, table alone": lambda: small("eva_giant_patch14_224", mlp_ratio=2),
    "cait": lambda: small("cait_xxs24_224"),
    "naflex": naflex,
    "naflex, prefix tokens": lambda: naflex(reg_tokens=2, class_token=True),
    "naflex, resampled": lambda: naflex(pos_embed_grid_size=(6, 5)),
    "naflex, rows and columns": lambda: naflex("naflexvit_base_patch16_parfac_gap"),
    "naflex, linear": lambda: naflex(embed_proj_type="linear"),
}
BIAS_TABLES = [kind for kind in RELATIVE if "beit" in kind or kind in ("relpos", "relpos, class token")]
WITH_ROWS = ["vit", "distilled", "eva, table alone", "cait", "naflex", "naflex, prefix tokens", "naflex, linear",
             "rotations and table", "rope with table", "mixed with table", "qwen3", "beit with table"]  # fmt: skip
KINDS = {**TABLES, **ROTARY, **RELATIVE}
SINGLE = ("deepseek",)  # timm computes parts of these in float32 always


def double(model: Any) -> Any:
    """The model in float64; timm computes mixed frequencies in float32 always, and wants the grid in it too."""
    model.double()
    for module in model.modules():
        if isinstance(module, RotaryEmbeddingMixed):
            for grid in module.buffers():
                grid.data = grid.data.float()
    return model


def hiding(network: nn.Module, **changes: Any) -> mjp.MJP:
    """The model with hidden positions and no localization; biases of hidden patches are not zero."""
    model = mjp.MJP(network, mjp.variant("G", ratio=0.5, **changes)).eval()
    if model.biases is not None:
        nn.init.normal_(model.biases, generator=generator(4))
    return model


def reordered(plan: mjp.Plan) -> mjp.Plan:
    return mjp.plan_from_mask(plan.mask, plan.grid, generator=generator(1), derangement=True)


def step(model: mjp.MJP, images: Tensor, plan: mjp.Plan) -> list[Tensor]:
    """The gradients of one step."""
    model.zero_grad()
    model(images, plan).logits.square().sum().backward()
    return list(gradients(model).values())


def position_rows(model: mjp.MJP) -> Tensor:
    """Which rows of the patches' position table have a gradient, (N,)."""
    table = next(parameter for name, parameter in model.named_parameters() if name.endswith("pos_embed"))
    assert table.grad is not None
    return table.grad.flatten(1, -2)[0, -16:].ne(0).any(-1)


def relative_rows(model: Any) -> list[tuple[Tensor, Tensor]]:
    """The gradient of every table of biases, (distances, H), and which distance each pair of patches has, (N, N)."""
    pairs = []
    for module in model.modules():
        table = getattr(module, "relative_position_bias_table", None)
        if table is not None and table.grad is not None:
            tokens = round(module.relative_position_index.numel() ** 0.5)
            pairs.append((table.grad, module.relative_position_index.view(tokens, tokens)[-16:, -16:]))
    return pairs
