"""Figures of robustness against scikit-learn, against brute force, and by hand."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import average_precision_score

from mjp.common.stats import interval, resample
from mjp.evaluation.robustness.corruptions import CORRUPTIONS, SEVERITIES
from mjp.evaluation.robustness.metrics import ALEXNET, aurra, average_precision, corruption_errors, rate_replicates


def flags(wrong: int, of: int) -> torch.Tensor:
    return torch.arange(of) < wrong


def grid(wrong: int, of: int = 10) -> dict[tuple[str, int], torch.Tensor]:
    return {(name, severity): flags(wrong, of) for name in CORRUPTIONS for severity in SEVERITIES}


# mCE


def test_alexnet_is_known_for_every_corruption_and_averages_as_published() -> None:
    assert tuple(ALEXNET) == CORRUPTIONS
    assert sum(ALEXNET.values()) / 15 == pytest.approx(0.789, abs=1e-3)


def test_mean_corruption_errors_by_hand() -> None:
    wrong = grid(5)
    for severity in SEVERITIES:
        wrong["fog", severity] = flags(severity, 10)  # 10, 20, … 50 %: 30 % on average
    result = corruption_errors(wrong, seed=0)
    assert result.errors["fog"] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])
    assert result.means["fog"].mean == pytest.approx(0.3)
    assert result.mce_unnormalised is not None
    assert result.mce_unnormalised.mean == pytest.approx((14 * 0.5 + 0.3) / 15)
    assert result.mce is not None
    others = [0.5 / error for name, error in ALEXNET.items() if name != "fog"]
    assert result.mce.mean == pytest.approx((sum(others) + 0.3 / 0.819324) / 15)
    assert (result.mce_over, result.pictures) == (15, 10)


def test_alexnets_own_mce_is_1() -> None:
    wrong = {(name, s): flags(round(500 * error), 500) for name, error in ALEXNET.items() for s in SEVERITIES}
    mce = corruption_errors(wrong, seed=0).mce
    assert mce is not None
    assert mce.mean == pytest.approx(1, abs=1e-3)


def test_an_incomplete_corruption_is_shown_but_not_averaged() -> None:
    wrong = grid(5)
    del wrong["snow", 3]
    wrong["snow", 1] = flags(10, 10)
    result = corruption_errors(wrong, seed=0)
    assert result.errors["snow"] == [1.0, 0.5, None, 0.5, 0.5]
    assert "snow" not in result.means
    assert result.mce_over == 14
    assert result.mce_unnormalised is not None
    assert result.mce_unnormalised.mean == pytest.approx(0.5)


def test_without_all_five_severities_there_is_no_comparison_with_alexnet() -> None:
    wrong = {("fog", 2): flags(3, 10), ("fog", 4): flags(5, 10)}
    result = corruption_errors(wrong, (2, 4), seed=0)
    assert result.mce is None
    assert result.mce_unnormalised is not None
    assert result.mce_unnormalised.mean == pytest.approx(0.4)
    assert corruption_errors({("fog", 2): flags(3, 10)}, seed=0).mce_unnormalised is None


def test_the_interval_knows_that_it_is_the_same_pictures_in_every_set() -> None:
    wrong = flags(700, 1900)[torch.randperm(1900, generator=torch.Generator().manual_seed(0))]
    alone = corruption_errors({("fog", s): wrong for s in SEVERITIES[:1]}, (1,), seed=3).means["fog"]
    together = corruption_errors({("fog", s): wrong for s in SEVERITIES}, seed=3).means["fog"]
    assert together == pytest.approx(alone)
    expected = stats.bootstrap((wrong.double().numpy(),), np.mean, n_resamples=2000, method="percentile", rng=0)
    width = expected.confidence_interval.high - expected.confidence_interval.low
    assert together.high - together.low == pytest.approx(width, rel=0.15)


# AURRA


def test_aurra_by_hand() -> None:
    answers = torch.tensor([[0.2, 0.0], [0.9, 1.0], [0.6, 0.0], [0.7, 1.0]])
    assert aurra(answers) == pytest.approx((1 / 1 + 2 / 2 + 2 / 3 + 2 / 4) / 4)
    assert aurra(torch.tensor([[0.5, 1.0]])) == 1
    assert aurra(torch.tensor([[0.5, 0.0]])) == 0


@given(st.lists(st.tuples(st.sampled_from([0.2, 0.5, 0.9]), st.booleans()), min_size=1, max_size=6))
def test_aurra_of_equal_confidences_is_the_mean_over_their_orders(pairs: list[tuple[float, bool]]) -> None:
    areas = []
    for order in permutations(pairs):
        if [c for c, _ in order] == sorted((c for c, _ in pairs), reverse=True):
            right = np.cumsum([hit for _, hit in order])
            areas.append(float(np.mean(right / np.arange(1, len(order) + 1))))
    assert aurra(torch.tensor(pairs, dtype=torch.float64)) == pytest.approx(float(np.mean(areas)))


def test_aurra_rewards_being_sure_when_right() -> None:
    confidence = torch.linspace(0, 1, 50)
    assert aurra(torch.stack([confidence, (confidence > 0.5).float()], 1)) > 0.8
    assert aurra(torch.stack([confidence, (confidence < 0.5).float()], 1)) < 0.2


# AUPR


@given(
    st.lists(st.sampled_from([-0.9, -0.7, -0.5, -0.3, -0.1]), min_size=1, max_size=25),
    st.lists(st.sampled_from([-0.9, -0.7, -0.5, -0.3, -0.1]), min_size=1, max_size=25),
)
def test_average_precision_is_that_of_scikit_learn_with_ties(outliers: list[float], others: list[float]) -> None:
    theirs = average_precision_score([1] * len(outliers) + [0] * len(others), outliers + others)
    assert average_precision(torch.tensor(outliers), torch.tensor(others)) == pytest.approx(theirs)


def test_average_precision_is_that_of_scikit_learn_on_many_scores() -> None:
    source = torch.Generator().manual_seed(0)
    outliers, others = torch.rand(200, generator=source) + 0.2, torch.rand(1000, generator=source)
    labels = [1] * 200 + [0] * 1000
    theirs = average_precision_score(labels, torch.cat([outliers, others]).numpy())
    assert average_precision(outliers, others) == pytest.approx(theirs)


# intervals of what is not a mean


def test_resampling_agrees_with_scipy() -> None:
    source = torch.Generator().manual_seed(1)
    outliers, others = torch.rand(80, generator=source) + 0.3, torch.rand(300, generator=source)
    ours = resample(average_precision, outliers, others, seed=0)

    def theirs(a: Any, b: Any) -> float:
        return float(average_precision_score([1] * len(a) + [0] * len(b), np.concatenate([a, b])))

    groups = (outliers.double().numpy(), others.double().numpy())
    found = stats.bootstrap(
        groups, theirs, n_resamples=500, method="percentile", vectorized=False, rng=0
    ).confidence_interval
    width = found.high - found.low
    assert ours.mean == pytest.approx(average_precision(outliers, others))
    assert ours.low == pytest.approx(found.low, abs=0.15 * width)
    assert ours.high == pytest.approx(found.high, abs=0.15 * width)


def test_resampling_follows_its_seed() -> None:
    answers = torch.rand(60, 2, generator=torch.Generator().manual_seed(2)).round(decimals=1)
    assert resample(aurra, answers, seed=1) == resample(aurra, answers, seed=1)
    assert resample(aurra, answers, seed=1) != resample(aurra, answers, seed=2)


def test_a_share_has_its_exact_mean() -> None:
    result = interval(rate_replicates(flags(1234, 3000).unsqueeze(1), seed=0)[:, 0])
    assert result.mean == pytest.approx(1234 / 3000)
    assert result.low < result.mean < result.high
