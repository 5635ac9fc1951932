"""Means and intervals of the streaming bootstrap."""

import numpy as np
import pytest
import torch
from scipy import stats

from mjp.common.stats import BLOCK, Bootstrap


def collected(values: torch.Tensor, *, batch: int = 50, seed: int = 0) -> Bootstrap:
    bootstrap = Bootstrap(values.shape[1], seed=seed)
    for part in values.split(batch):
        bootstrap.add(part)
    return bootstrap


def test_mean_and_count_are_exact() -> None:
    values = torch.rand(333, 3, generator=torch.Generator().manual_seed(0))
    bootstrap = collected(values)
    assert bootstrap.count == 333
    assert [i.mean for i in bootstrap.intervals()] == pytest.approx(values.double().mean(0).tolist())


def test_interval_agrees_with_scipys_bootstrap() -> None:
    values = torch.rand(400, 1, generator=torch.Generator().manual_seed(1)) ** 2
    ours = collected(values).intervals()[0]
    theirs = stats.bootstrap((values[:, 0].numpy(),), np.mean, n_resamples=2000, method="percentile", rng=0)
    width = float(theirs.confidence_interval.high - theirs.confidence_interval.low)
    assert ours.low == pytest.approx(float(theirs.confidence_interval.low), abs=0.15 * width)
    assert ours.high == pytest.approx(float(theirs.confidence_interval.high), abs=0.15 * width)


def test_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    draws = torch.Generator().manual_seed(2)
    covered = 0
    for seed in range(120):
        sample = (torch.rand(200, 1, generator=draws) < 0.7).float()
        interval = collected(sample, batch=200, seed=seed).intervals()[0]
        covered += interval.low <= 0.7 <= interval.high
    assert 104 <= covered <= 120  # 114 expected, 2.4 standard deviation


def test_two_pictures_have_an_interval_though_some_replicates_are_empty() -> None:
    bootstrap = collected(torch.tensor([[0.0], [1.0]]))
    assert bootstrap.means().isnan().any()
    assert bootstrap.intervals() == [(0.5, 0.0, 1.0)]


def test_memory_does_not_grow_with_the_number_of_pictures() -> None:
    bootstrap = Bootstrap(2, seed=0)
    before = bootstrap.sums.numel() + bootstrap.weights.numel()
    for _ in range(20):
        bootstrap.add(torch.ones(100, 2))
    assert bootstrap.sums.numel() + bootstrap.weights.numel() == before
    assert vars(bootstrap).keys() == {"generator", "sums", "weights", "pending"}
    assert len(bootstrap.pending) <= BLOCK


def test_one_seed_one_interval() -> None:
    values = torch.rand(100, 1, generator=torch.Generator().manual_seed(3))
    assert collected(values).intervals() == collected(values).intervals()
    assert collected(values).intervals() != collected(values, seed=1).intervals()


@pytest.mark.parametrize("batch", [1, 7, 64, 128, 333])
def test_intervals_do_not_depend_on_the_batch_size(batch: int) -> None:
    values = torch.rand(333, 2, generator=torch.Generator().manual_seed(3))
    usual, other = (collected(values, batch=size).intervals() for size in (50, batch))
    assert [tuple(i) for i in other] == [pytest.approx(tuple(i)) for i in usual]
