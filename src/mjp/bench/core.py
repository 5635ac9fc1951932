"""What MJP costs by itself: shuffling, plans, and its share of a training step.

shuffle_vs_copy        shuffling a 64×196×384 float32 token tensor, relative to a plain copy, on one core
plans_1024_ms          milliseconds to draw 1,024 plans on a 14×14 grid at γ = .27, on one core
step_overhead_percent  all that MJP adds to a DeiT-S training step (plan, shuffle, E_unk, DAL, forward, backward and
                       optimizer), relative to the plain step
rope_step_overhead_percent  the same for a ViT-S with rotary positions: what MJP adds to a step of a single block, and
                       for every further block what it costs to turn queries and keys image by image, not all alike
"""

from collections.abc import Callable
from typing import Any

import timm
import torch
from timm.layers import apply_rot_embed_cat
from torch import Tensor
from torch.nn.functional import cross_entropy

from mjp.bench.timing import minima, one_thread, processor_seconds
from mjp.common.progress import track
from mjp.method.backbones.rotary import hide_rotations
from mjp.method.config import preset
from mjp.method.model import MJP
from mjp.method.plan import sample_plan
from mjp.method.positions import Positions
from mjp.method.shuffle import shuffle_tokens

REPEATS = 5  # training steps; the short operations are repeated forty times as often
MODEL = "deit_small_patch16_224"
ROTARY_MODEL = "vit_small_patch16_rope_224"


def measure(repeats: int, batch: int) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    parts = (
        lambda: _time_shuffle(repeats),
        lambda: _time_plans(repeats),
        lambda: _time_step(repeats, batch),
        lambda: _time_rotary_step(repeats, batch),
    )
    for part in track(parts, "measuring"):
        figures |= part()
    return figures


def lines(figures: dict[str, Any]) -> list[str]:
    step = f"+ {figures['step_overhead_percent']:.2f} % ({figures['step_added_ms']:.1f} ms more than"
    rotary = f"+ {figures['rope_step_overhead_percent']:.2f} % ({figures['rope_step_added_ms']:.1f} ms more than"
    return [
        f"token shuffle          {figures['shuffle_vs_copy']:.2f} × a plain copy",
        f"1,024 plans            {figures['plans_1024_ms']:.1f} ms on one core",
        f"DeiT-S training step   {step} {figures['step_plain_ms']:.0f} ms, batch {figures['batch']})",
        f"rotary training step   {rotary} {figures['rope_step_plain_ms']:.0f} ms, batch {figures['batch']})",
    ]


def _time_shuffle(repeats: int) -> dict[str, Any]:
    tokens = torch.randn(64, 196, 384, generator=torch.Generator().manual_seed(0))
    plan = sample_plan(64, (14, 14), 0.27, generator=torch.Generator().manual_seed(0))
    with one_thread():
        times = minima(40 * repeats, shuffle=lambda: shuffle_tokens(tokens, plan), copy=tokens.clone)
    return {"shuffle_vs_copy": round(times["shuffle"] / times["copy"], 3)}


def _time_plans(repeats: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    with one_thread():
        times = minima(40 * repeats, plans=lambda: sample_plan(1024, (14, 14), 0.27, generator=generator))
    return {"plans_1024_ms": round(times["plans"], 2)}


def _time_step(repeats: int, batch: int) -> dict[str, Any]:
    """The plain step in full; and without its blocks, whose noise would drown it, the step with and without MJP."""
    images, labels = _batch(batch)
    times = minima(
        10 * repeats,
        every_tenth="full",
        full=_training_step(timm.create_model(MODEL), images, labels),
        plain=_training_step(timm.create_model(MODEL, depth=0), images, labels),
        mjp=_training_step(MJP(timm.create_model(MODEL, depth=0), "paper"), images, labels),
    )
    added = times["mjp"] - times["plain"]
    return {
        "step_overhead_percent": round(100 * added / times["full"], 3),
        "step_added_ms": round(added, 2),
        "step_plain_ms": round(times["full"], 1),
        "batch": batch,
        "threads": torch.get_num_threads(),
    }


def _time_rotary_step(repeats: int, batch: int) -> dict[str, Any]:
    """As for DeiT-S; hidden rotations reach every block, so that what they cost there is measured and added."""
    images, labels = _batch(batch)
    hiding = preset("paper", localize="none")  # rotations have no table to localise
    network: Any = timm.create_model(ROTARY_MODEL)
    table = network.rope.get_embed()  # (N, 2d)
    mask = sample_plan(batch, (14, 14), hiding.ratio, generator=torch.Generator().manual_seed(0)).mask
    hidden = hide_rotations(network, table, Positions(None, None, mask))  # (B, 1, N, 2d)
    with one_thread():  # idle threads that wait for work would count as computing
        times = minima(
            10 * repeats,
            every_tenth="full",
            clock=processor_seconds,
            full=_training_step(network, images, labels),
            plain=_training_step(timm.create_model(ROTARY_MODEL, depth=1), images, labels),
            mjp=_training_step(MJP(timm.create_model(ROTARY_MODEL, depth=1), hiding), images, labels),
        )
        turning = minima(
            20 * repeats,
            clock=processor_seconds,
            alike=_rotation(network, table, batch),
            by_image=_rotation(network, hidden, batch),
        )
    blocks = (len(network.blocks) - 1) * 2 * (turning["by_image"] - turning["alike"])  # queries and keys
    added = times["mjp"] - times["plain"] + blocks
    return {
        "rope_step_overhead_percent": round(100 * added / times["full"], 3),
        "rope_step_added_ms": round(added, 2),
        "rope_step_plain_ms": round(times["full"], 1),
    }


def _rotation(network: Any, table: Tensor, batch: int) -> Callable[[], None]:
    """Turn the queries of a batch by a table, forward and backward."""
    attention = network.blocks[0].attn
    shape = (batch, attention.num_heads, table.shape[-2], attention.head_dim)
    queries = torch.randn(shape, generator=torch.Generator().manual_seed(0)).requires_grad_()
    gradient = torch.ones(shape)

    def turn() -> None:
        queries.grad = None
        apply_rot_embed_cat(queries, table, half=attention.rotate_half).backward(gradient)

    return turn


def _batch(batch: int) -> tuple[Tensor, Tensor]:
    """Images and labels of random numbers."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(batch, 3, 224, 224, generator=generator)
    return images, torch.randint(1000, (batch,), generator=generator)


def _training_step(model: Any, images: Tensor, labels: Tensor) -> Callable[[], None]:
    """Forward, loss, backward and optimizer of a timm model or of MJP around one."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        out = model(images)
        logits, dal = (out, 0) if isinstance(out, Tensor) else (out.logits, out.dal)
        (cross_entropy(logits, labels) + 0.01 * dal).backward()
        optimizer.step()

    return step
