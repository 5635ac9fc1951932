"""Measure what things cost on this machine; alternatives take turns, so that a disturbance hits all of them.

benchmarks:
  core      what MJP adds to a training step, a shuffle relative to a copy, and drawing plans
  train     the training engine relative to a bare PyTorch loop, and MJP relative to plain training
  jobs      a training process per core relative to a thread per core
  sweep     a sweep over mask ratios relative to plain passes over the same pictures
  attacks   how exact and how quick the closed-form attacks are
  federated what the audit of an update adds to a local epoch of a federated client
  app       how quickly the page of mjp app answers
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

import tyro

from mjp.common.results import Results


@dataclass
class Options:
    what: tyro.conf.Positional[Literal["core", "train", "jobs", "sweep", "attacks", "federated", "app"]] = "core"
    """What to measure."""
    repeats: int | None = None
    """How often everything is measured; default: 40 for train, 20 for app, 5 for the others."""
    batch: int = 16
    """Pictures per training step of core; MJP's share shrinks as it grows."""


def run(options: Options) -> Results:
    from mjp.common.results import make_results
    from mjp.common.validate import whole

    whole("--batch", options.batch, least=1)
    whole("--repeats", 1 if options.repeats is None else options.repeats, least=1)
    benchmark: Any = import_module(f"mjp.bench.{options.what}")
    figures = benchmark.measure(options.repeats or benchmark.REPEATS, options.batch)
    print("\n".join(benchmark.lines(figures)))
    return make_results("bench", options, figures)
