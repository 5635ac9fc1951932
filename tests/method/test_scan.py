"""The table of all timm models is true: a sample is judged anew, and no model with positions passes for one without."""

import runpy
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from torch import nn

import mjp
from method.tiny import cnn, swin, vit
from mjp.method.position_parts import ABSOLUTE, CONVOLUTIONAL, RELATIVE, ROTARY, described, position_parts

ROOT = Path(__file__).parent.parent.parent
TOOL = runpy.run_path(str(ROOT / "tools" / "scan_timm.py"))
PAGE = (ROOT / "docs" / "models.md").read_text()

NO_TABLE = "its positions are rotations, with no table to localise; the localization loss (DAL) is off"
NO_POSITIONS = "it has no position embeddings to hide or localise; only the jigsaw is left"
CONVOLUTIONS = "and its convolutions look across patches"
SAMPLE = {
    "deit_tiny_patch16_224": ("hidden", ""),
    "flexivit_small": ("hidden", ""),
    "eva02_tiny_patch14_224": ("hidden", ""),
    "vit_small_patch16_rope_224": ("hidden", NO_TABLE),
    "vit_small_patch16_rope_mixed_224": ("hidden", NO_TABLE),
    "vit_small_patch16_dinov3": ("hidden", NO_TABLE),
    "resnet18": ("jigsaw only", NO_POSITIONS),
    "mixer_s32_224": ("jigsaw only", NO_POSITIONS),
    "swin_tiny_patch4_window7_224": ("jigsaw only", "its positions are relative biases in every attention layer"),
    "naflexvit_base_patch16_gap": ("hidden", ""),
    "naflexvit_base_patch16_parfac_gap": ("hidden", ""),
    "cait_xxs24_224": ("hidden", ""),
    "beit_base_patch16_224": ("hidden", NO_TABLE.replace("rotations", "relative biases")),
    "vit_relpos_small_patch16_224": ("hidden", NO_TABLE.replace("rotations", "relative biases")),
    "vit_srelpos_small_patch16_224": ("hidden", NO_TABLE.replace("rotations", "relative biases")),
    "deepseek_vit_412m": ("hidden", NO_TABLE),
    "qwen3_vit_88m": ("hidden", ""),
    "qwen3_vit_88m_merge": ("refused", "its projector joins neighbouring patches"),
    "qwen3_vit_88m_enc": ("refused", "it gives tokens to a language model and no logits"),
    "crossvit_9_240": ("refused", "absolute positions (pos_embed_0), and it sees pictures on two grids"),
    "convit_tiny": ("refused", "its heads add attention by place alone"),
    "swinv2_cr_tiny_224": ("refused", "its windows see which patches are neighbours"),
    "tnt_s_legacy_patch16_224": ("refused", f"absolute positions (patch_pos), {CONVOLUTIONS}"),
    "nest_tiny": ("refused", f"absolute positions (pos_embed), {CONVOLUTIONS}"),
    "visformer_tiny": ("refused", f"absolute positions (pos_embed1), {CONVOLUTIONS}"),
    "xcit_nano_12_p16_224": ("refused", f"absolute positions (pos_embed), {CONVOLUTIONS}"),
    "vit_tiny_r_s16_p8_224": ("refused", "its patches overlap or pass a convolutional stem"),
    "mvitv2_tiny": ("refused", "relative position biases"),
    "hiera_tiny_224": ("refused", f"absolute positions (pos_embed), {CONVOLUTIONS}"),
    "levit_128s": ("refused", "relative position biases"),
    "botnet26t_256": ("refused", "relative position biases"),
    "resnet50_clip": ("refused", "absolute positions (pos_embed)"),
    "twins_svt_small": ("refused", "convolutions that encode positions (pos_block)"),
    "gemma4_vit_167m": ("refused", "inside its own layers, for which there is no adapter"),
}


@pytest.mark.parametrize("name", SAMPLE)
def test_the_verdict_is_true_and_on_the_page(name: str) -> None:
    outcome, reason = SAMPLE[name]
    verdict = TOOL["judge"](TOOL["build"](name))
    assert verdict.outcome == outcome
    assert reason in verdict.reason
    assert bool(reason) == bool(verdict.reason)
    section = PAGE.split(f"## {outcome.capitalize()}")[1].split("\n## ")[0]
    assert any(
        row.startswith(f"| {verdict.kind} |") and row.endswith(f"| {verdict.reason} |") for row in section.splitlines()
    )


def test_the_page_accounts_for_every_model() -> None:
    rows = [line.split(" | ") for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| class")]
    assert sum(int(row[1]) for row in rows) == len(timm.list_models())
    assert timm.__version__ in PAGE


def test_no_row_without_positions_has_a_part_that_sounds_like_them() -> None:
    section = PAGE.split("## Jigsaw only")[1].split("\n## ")[0]
    reasons = {line.split(" | ")[3].removesuffix(" |") for line in section.splitlines() if line.startswith("| ")}
    assert {reason for reason in reasons if reason != "remarks"} == {
        NO_POSITIONS,
        "its positions are relative biases in every attention layer, which cannot be hidden or localised; "
        "only the jigsaw is left",
    }


class Parts(nn.Module):
    """A model with one named part."""

    def __init__(self, name: str, part: Any) -> None:
        super().__init__()
        self.blocks = nn.Sequential(nn.Module())
        setattr(self.blocks[0], name, part)


@pytest.mark.parametrize(
    ("name", "part", "kind"),
    [
        ("pos_embed", nn.Parameter(torch.zeros(1)), ABSOLUTE),
        ("position_embedding_table", nn.Parameter(torch.zeros(1)), ABSOLUTE),
        ("patch_pos", nn.Parameter(torch.zeros(1)), ABSOLUTE),
        ("rope", nn.Linear(1, 1), ROTARY),
        ("emb", timm.layers.RotaryEmbeddingCat(8, feat_shape=[2, 2]), ROTARY),
        ("pos_embed", timm.layers.halo_attn.PosEmbedRel(2, 4, 4, 1.0), RELATIVE),
        ("attention_biases", nn.Parameter(torch.zeros(1)), RELATIVE),
        ("cpe1", nn.Conv2d(1, 1, 3), CONVOLUTIONAL),
        ("rel_indices", torch.zeros(1), RELATIVE),
        ("pos_embed", None, None),
        ("pos_emb", nn.Identity(), None),
        ("pos_drop", nn.Dropout(), None),
        ("composer", nn.Linear(1, 1), None),
        ("relu", nn.ReLU(), None),
        ("repeat", nn.Linear(1, 1), None),
    ],
)
def test_positions_are_recognised_by_name_and_class(name: str, part: Any, kind: str | None) -> None:
    assert position_parts(Parts(name, part)) == ({} if kind is None else {f"blocks.0.{name}": kind})


def test_what_is_inside_a_part_is_not_listed_again_and_kinds_are_named_once() -> None:
    network = timm.create_model("vit_small_patch16_rope_ape_224", depth=1)
    assert position_parts(network) == {"pos_embed": ABSOLUTE, "rope": ROTARY}
    assert described(position_parts(network)) == "absolute positions (pos_embed) and rotary positions (rope)"
    assert position_parts(cnn()) == {}
    assert position_parts(vit(pos_embed="none")) == {}


def test_a_vit_with_positions_beside_its_table_is_not_promised_anything() -> None:
    network = vit()
    network.blocks[0].attn.rel_pos_bias = nn.Parameter(torch.zeros(3))
    with pytest.raises(mjp.InputError, match=r"relative position biases \(blocks.0.attn.rel_pos_bias\), which cannot"):
        mjp.MJP(network, "private")
    mjp.MJP(network, mjp.variant("E"))


def test_a_swin_is_told_the_truth_about_its_positions() -> None:
    with pytest.warns(UserWarning, match="SwinTransformer: its positions are relative biases.*only the jigsaw is left"):
        mjp.MJP(swin(), "private")
    with pytest.raises(mjp.InputError, match=r"relative biases in every attention layer.*cannot erase them"):
        mjp.MJP(swin(), mjp.variant("B"))
