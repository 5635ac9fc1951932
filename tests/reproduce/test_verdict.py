"""The rule of verdicts: intervals against scipy's, and what they decide."""

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from mjp.reproduce.verdict import Difference, decide, paired_difference, seed_variance


def test_one_number_per_seed_gives_students_interval() -> None:
    values = np.array([0.3, 0.1, 0.5, 0.2])
    interval = ttest_1samp(values, 0).confidence_interval(0.95)
    result = paired_difference(values)
    assert (result.low, result.high) == pytest.approx((interval.low, interval.high))
    assert result.mean == pytest.approx(values.mean())


def test_several_comparisons_widen_the_interval_as_bonferroni_says() -> None:
    values = np.array([0.3, 0.1, 0.5, 0.2])
    interval = ttest_1samp(values, 0).confidence_interval(1 - 0.05 / 20)
    assert paired_difference(values, comparisons=20).low == pytest.approx(interval.low)


def test_pictures_widen_the_interval_when_seeds_agree() -> None:
    generator = np.random.default_rng(0)
    pictures = generator.normal(0.1, 1.0, 400)
    same = np.stack([pictures] * 5)  # no variance between seeds
    result = paired_difference(same)
    interval = ttest_1samp(pictures, 0).confidence_interval(0.95)
    assert (result.low, result.high) == pytest.approx((interval.low, interval.high))


def test_the_interval_covers_the_truth_when_seeds_and_pictures_both_vary() -> None:
    generator = np.random.default_rng(1)
    covered = 0
    for _ in range(400):
        effects = generator.normal(0.0, 0.05, (3, 1)) + generator.normal(0.0, 0.5, (1, 200))
        result = paired_difference(0.2 + effects + generator.normal(0.0, 0.3, (3, 200)))
        covered += result.low <= 0.2 <= result.high
    assert covered / 400 >= 0.93


def test_the_variance_of_seeds_is_the_residual_of_a_two_way_table() -> None:
    generator = np.random.default_rng(2)
    noise = generator.normal(0.0, 0.3, (40, 5))
    pooled = seed_variance(noise + generator.normal(0, 9, (40, 1)) + generator.normal(0, 9, (1, 5)))
    assert pooled is not None
    assert pooled.degrees == 39 * 4
    assert pooled.value == pytest.approx(0.09, rel=0.25)
    assert pooled.value == pytest.approx(seed_variance(noise).value)  # type: ignore[union-attr]
    assert seed_variance(noise[:1]) is None


def test_two_runs_alone_pool_to_the_variance_of_their_own_difference() -> None:
    runs = np.random.default_rng(3).normal(0.0, 1.0, (2, 4))
    of_seeds = seed_variance(runs)
    alone = paired_difference(runs[0] - runs[1])
    assert paired_difference(runs[0] - runs[1], of_seeds=of_seeds).low == pytest.approx(alone.low)


def test_the_pooled_interval_covers_the_truth() -> None:
    generator = np.random.default_rng(4)
    covered = 0
    for _ in range(400):
        runs = generator.normal(0.0, 0.05, (8, 3, 1)) + generator.normal(0.0, 0.5, (8, 1, 100))
        runs = runs + generator.normal(0.0, 0.3, (8, 3, 100))
        result = paired_difference(runs[0] - runs[1], of_seeds=seed_variance(runs.mean(2)))
        covered += result.low <= 0 <= result.high
    assert covered / 400 >= 0.93


def test_two_runs_of_three_seeds_err_no_more_often_than_they_say() -> None:
    generator = np.random.default_rng(5)
    wrong = 0
    for _ in range(2000):
        runs = generator.normal(0.0, 0.02, (2, 3, 1)) + generator.normal(0.0, 0.1, (2, 1, 50))
        result = paired_difference(runs[0] - runs[1], comparisons=5, of_seeds=seed_variance(runs.mean(2)))
        wrong += decide(result) != "undecided"
    assert wrong / 2000 <= 0.05 / 5


def test_equal_numbers_decide_nothing() -> None:
    assert decide(paired_difference(np.array([0.001, 0.001]))) == "undecided"


def test_one_seed_decides_nothing() -> None:
    result = paired_difference(np.ones((1, 50)))
    assert decide(result) == "undecided"


@pytest.mark.parametrize(
    ("low", "high", "margin", "outcome"),
    [
        (0.1, 0.3, 0.0, "holds"),
        (-0.1, 0.3, 0.0, "undecided"),
        (-0.3, -0.1, 0.0, "does not hold"),
        (-0.005, 0.3, 0.01, "holds"),
        (-0.3, -0.005, 0.01, "undecided"),
        (-0.3, -0.02, 0.01, "does not hold"),
    ],
)
def test_what_an_interval_decides(low: float, high: float, margin: float, outcome: str) -> None:
    assert decide(Difference((low + high) / 2, low, high, 3, 100), margin=margin) == outcome
