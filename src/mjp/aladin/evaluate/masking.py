"""The cost of hiding positions: recall over the mask ratio γ, and whether that curve means anything.

E_unk            hidden slots share the unknown position: what `mjp aladin index --mask-ratio γ` stores
positions kept   patches are shuffled and take the positions of the slots they land in: works with any ViT

A backbone that does not use its positions loses nothing either way: its curve would look like perfect privacy at no
cost, and mean nothing. The curve therefore has a gate. With positions kept, the largest γ must cost recall: the 95 %
interval of the paired difference to γ = 0 must be below zero. A scorer that does not pass the gate is named.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mjp.aladin.data.corpus import Corpus, batches, encode_captions
from mjp.aladin.evaluate.metrics import hit_intervals, hits, ranks
from mjp.aladin.evaluate.scorers import ALIGNMENT, VECTOR, scores_of
from mjp.aladin.index.encode import draw_plan
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.codes import Codes, joined
from mjp.aladin.model.tokens import Tokens, vision_tokens
from mjp.common.errors import InputError
from mjp.common.seeds import derive_seed
from mjp.evaluation.sweep import position_views
from mjp.method.model import MJP
from mjp.pictures.decode import open_rgb

CLEAN = "clean"


def mask_curve(model: Aladin, corpus: Corpus, ratios: Sequence[float], *, draws: int, seed: int) -> dict[str, Any]:
    """rsum of both scorers at every γ with intervals over pictures, differences to γ = 0, and the gate."""
    backbone = vit_of(model)
    texts, owner = encode_captions(model, corpus), corpus.owner
    settings = [(ratio, unknown) for ratio in sorted(set(ratios) - {0.0}) for unknown in position_views(backbone)]
    counts: dict[str, dict[str, Tensor]] = {ALIGNMENT: {}, VECTOR: {}}  # hits (B, 2) by scorer and setting
    for setting in (None, *settings):
        drawn = [_hits(model, corpus, texts, setting, draw, seed) for draw in range(draws if setting else 1)]
        for scorer in counts:
            counts[scorer][_name(setting)] = torch.stack([hit[scorer] for hit in drawn]).mean(0)
    intervals = {scorer: hit_intervals(by_setting, owner, CLEAN, seed=seed) for scorer, by_setting in counts.items()}

    def entry(setting: tuple[float, bool] | None) -> dict[str, Any]:
        return {
            scorer: {kind: value._asdict() for kind, value in by_setting[_name(setting)].items()}
            for scorer, by_setting in intervals.items()
        }

    points = [{"ratio": ratio, "unknown": unknown, **entry((ratio, unknown))} for ratio, unknown in settings]
    verdict = gate(points)
    curve = {"draws": draws, "seed": seed, CLEAN: entry(None), "points": points}
    return {**curve, "gate": verdict, "headline": gate_sentences(verdict)}


def gate(points: list[dict[str, Any]]) -> dict[str, Any]:
    """For each scorer: what the largest γ costs with positions kept, and whether that is a loss beyond chance."""
    last = max((point for point in points if not point["unknown"]), key=lambda point: point["ratio"])
    costs = {scorer: last[scorer]["difference"] for scorer in (ALIGNMENT, VECTOR)}
    verdict = {scorer: {"difference": cost, "open": cost["high"] < 0} for scorer, cost in costs.items()}
    return {"ratio": last["ratio"], **verdict}


def gate_sentences(verdict: dict[str, Any]) -> list[str]:
    """Whether the curve of each scorer means anything, and why."""
    sentences = []
    for scorer in (ALIGNMENT, VECTOR):
        mean, low, high = (f"{verdict[scorer]['difference'][key]:+.1f}" for key in ("mean", "low", "high"))
        cost = f"{scorer}: with patches shuffled and positions kept, γ = {verdict['ratio']:g} changes rsum by "
        sentences.append(
            f"{cost}{mean} [{low}, {high}]: the backbone uses its positions, and the curve means something."
            if verdict[scorer]["open"]
            else f"{cost}{mean} [{low}, {high}]: no loss beyond chance. The backbone does not use its positions here, "
            "and the curve means nothing."
        )
    return sentences


def vit_of(model: Aladin) -> MJP:
    """The backbone, if it is a ViT, whose patches have positions to hide."""
    backbone = model.vision.model
    if not isinstance(backbone, MJP) or not backbone.adapter.exchangeable:
        raise InputError(
            f"--mask-ratios needs a ViT as backbone; {model.vision.name} cannot hide positions: omit the option, "
            "or train on a ViT (--model.backbone mini-cifar10-mjp, a folder, or timm:NAME)"
        )
    return backbone


def _name(setting: tuple[float, bool] | None) -> str:
    return CLEAN if setting is None else str(setting)


def _hits(
    model: Aladin, corpus: Corpus, texts: Codes, setting: tuple[float, bool] | None, draw: int, seed: int
) -> dict[str, Tensor]:
    """One jigsaw for every picture, or none; the same with positions kept and with E_unk."""
    codes = joined(list(_codes(model, corpus, setting, derive_seed(seed, draw))))
    scores = scores_of(model, codes, texts)
    return {scorer: hits(ranks(matrix, corpus.owner), corpus.owner) for scorer, matrix in scores.items()}


@torch.no_grad()
def _codes(model: Aladin, corpus: Corpus, setting: tuple[float, bool] | None, seed: int) -> Iterator[Codes]:
    backbone, device = vit_of(model), model.log_scale.device
    ratio, unknown = setting or (0.0, False)
    view: nn.Module = backbone if setting is None else position_views(backbone)[unknown]
    for numbers in batches(range(len(corpus.items)), f"γ = {ratio:g}, {'E_unk' if unknown else 'positions kept'}"):
        images = torch.stack([model.vision.prepare(open_rgb(corpus.items[n].path)) for n in numbers]).to(device)
        seeds = [derive_seed(seed, n) for n in numbers]
        plan = None if setting is None else draw_plan(backbone, images, seeds, ratio)
        yield model.codes(Tokens(*(t.to(device) for t in vision_tokens(view, images, plan))))
