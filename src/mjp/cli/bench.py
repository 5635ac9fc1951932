"""Measure what MJP costs on this machine: three ratios from one run, alternatives interleaved, minimum of repeats.

shuffle_vs_copy        shuffling a 64×196×384 float32 token tensor, relative to a plain copy, on one core
plans_1024_ms          milliseconds to draw 1,024 plans on a 14×14 grid at γ = .27, on one core
step_overhead_percent  all that MJP adds to a DeiT-S training step (plan, shuffle, E_unk, DAL, forward, backward and
                       optimizer), relative to the plain step
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass
class Options:
    train: bool = False
    """Measure training instead: engine_overhead_percent (over a bare PyTorch loop) and mjp_train_overhead_percent (over
    plain training), medians of steps that take turns."""
    train_repeats: int = 40
    """Training steps of each kind with --train."""
    sweep: bool = False
    """Measure evaluation instead: sweep_cost_ratio, a sweep over γ relative to (number of γ + 1) plain passes."""
    attacks: bool = False
    """Measure the closed-form attacks instead: april_token_error, april_gelsd_ratio, direct_seconds."""
    json: bool = False
    """Print one JSON object and nothing else."""
    batch: int = 16
    """Pictures per training step. MJP's share shrinks as it grows."""
    repeats: int = 5
    """Training steps to time; the short operations are repeated forty times as often."""


def run(options: Options) -> None:
    from mjp.common.errors import InputError

    if min(options.batch, options.repeats, options.train_repeats) < 1:
        raise InputError("--batch, --repeats and --train-repeats must be at least 1")
    if options.train:
        _print_training(options)
    elif options.sweep:
        _print_sweep(options)
    elif options.attacks:
        _print_attacks(options)
    else:
        _print_method(options)


def _print_method(options: Options) -> None:
    result: dict[str, Any] = {}
    for part in (_shuffle, _plans, _step):
        print(f"measuring{part.__name__.replace('_', ' ')} ...", file=sys.stderr)
        result |= part(options)
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        print(f"token shuffle          {result['shuffle_vs_copy']:.2f} × a plain copy")
        print(f"1,024 plans            {result['plans_1024_ms']:.1f} ms on one core")
        print(
            f"DeiT-S training step   + {result['step_overhead_percent']:.2f} % ({result['step_added_ms']:.1f} ms more"
        )
        print(f"                       than {result['step_plain_ms']:.0f} ms, batch {options.batch})")


def _print_training(options: Options) -> None:
    from mjp.cli.bench_training import measure

    result = measure(options.train_repeats)
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        print(f"training engine   {result['engine_overhead_percent']:+.2f} % over a bare PyTorch loop")
        print(f"MJP               {result['mjp_train_overhead_percent']:+.2f} % over plain training")


def _print_sweep(options: Options) -> None:
    from mjp.cli.bench_sweep import measure

    result = measure(options.repeats)
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        passes = result["sweep_ratios"] + 1
        print(f"sweep over {result['sweep_ratios']} ratios   {result['sweep_cost_ratio']:.2f} × {passes} plain passes")


def _print_attacks(options: Options) -> None:
    from mjp.cli.bench_attacks import measure

    result = measure(options.repeats)
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        print(f"APRIL, ViT-B, float64    tokens to {result['april_token_error']:.1e}, gelsd takes")
        print(f"                         {result['april_gelsd_ratio']:.1f} × as long as gelsy")
        print(f"direct, DeiT-S, float32  {result['direct_seconds']:.1f} s, {result['direct_psnr']:.0f} dB")


def fastest(repeats: int, slow: str | None = None, **functions: Callable[[], object]) -> dict[str, float]:
    """Milliseconds of each function, the minimum over repeats that take turns, so that a disturbance hits all alike.

    The one named by `slow` takes part in every tenth turn only.
    """
    best = dict.fromkeys(functions, float("inf"))
    for function in functions.values():
        function()
    for turn in range(repeats):
        for name, function in functions.items():
            if name == slow and turn % 10:
                continue
            start = time.perf_counter()
            function()
            best[name] = min(best[name], 1e3 * (time.perf_counter() - start))
    return best


def _shuffle(options: Options) -> dict[str, Any]:
    import torch

    from mjp import sample_plan, shuffle_tokens

    tokens = torch.randn(64, 196, 384, generator=torch.Generator().manual_seed(0))
    plan = sample_plan(64, (14, 14), 0.27, generator=torch.Generator().manual_seed(0))
    with _one_thread():
        times = fastest(40 * options.repeats, shuffle=lambda: shuffle_tokens(tokens, plan), copy=tokens.clone)
    return {"shuffle_vs_copy": round(times["shuffle"] / times["copy"], 3)}


def _plans(options: Options) -> dict[str, Any]:
    import torch

    from mjp import sample_plan

    generator = torch.Generator().manual_seed(0)
    with _one_thread():
        times = fastest(40 * options.repeats, plans=lambda: sample_plan(1024, (14, 14), 0.27, generator=generator))
    return {"plans_1024_ms": round(times["plans"], 2)}


def _step(options: Options) -> dict[str, Any]:
    """The plain step in full; and without its blocks, whose noise would drown it, the step with and without MJP."""
    import timm
    import torch

    from mjp import MJP

    seeded = torch.Generator().manual_seed(0)
    images = torch.randn(options.batch, 3, 224, 224, generator=seeded)
    labels = torch.randint(1000, (options.batch,), generator=seeded)
    name = "deit_small_patch16_224"
    times = fastest(
        10 * options.repeats,
        slow="full",
        full=_training_step(timm.create_model(name), images, labels),
        plain=_training_step(timm.create_model(name, depth=0), images, labels),
        mjp=_training_step(MJP(timm.create_model(name, depth=0), "paper"), images, labels),
    )
    added = times["mjp"] - times["plain"]
    return {
        "step_overhead_percent": round(100 * added / times["full"], 3),
        "step_added_ms": round(added, 2),
        "step_plain_ms": round(times["full"], 1),
        "batch": options.batch,
        "threads": torch.get_num_threads(),
    }


def _training_step(model: Any, images: Any, labels: Any) -> Callable[[], None]:
    """Forward, loss, backward and optimizer of a timm model or of MJP around one."""
    import torch
    from torch.nn.functional import cross_entropy

    model.train()
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        out = model(images)
        logits, dal = (out, 0) if isinstance(out, torch.Tensor) else (out.logits, out.dal)
        (cross_entropy(logits, labels) + 0.01 * dal).backward()
        optimizer.step()

    return step


@contextmanager
def _one_thread() -> Iterator[None]:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
