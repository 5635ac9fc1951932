"""Which rows of an audit get a bound, for how many updates, and what is printed."""

from typing import Any

import pytest
import torch

from mjp.privacy.audit.bounds import bound_lines, bound_on
from mjp.privacy.server.bound import bound_gain
from mjp.privacy.server.prior import Prior, fit_prior


@pytest.fixture(scope="module")
def prior() -> Prior:
    return fit_prior(torch.rand(20, 3, 6, 6, generator=torch.Generator().manual_seed(0)))


def bound(prior: Prior, defence: str, setting: str = "a", pictures: int = 8, rounds: int = 1) -> dict[str, Any] | None:
    return bound_on({"defence": defence, "setting": setting}, prior, pictures=pictures, rounds=rounds)


@pytest.mark.parametrize("defence", ["none", "noise:10", "mjp:0.5", "batch:8", "bf16"])
def test_only_clipped_and_noised_pictures_have_a_bound(prior: Prior, defence: str) -> None:
    assert bound(prior, defence) is None
    assert bound(prior, f"dp:10+{defence}" if defence not in ("none", "noise:10") else "dp:10")


def test_every_local_step_of_every_round_counts(prior: Prior) -> None:
    expected = bound_gain(prior, 10.0, 12)
    row = bound(prior, "dp:10+fedavg:4", rounds=3)
    assert row is not None
    assert row["updates"] == 12
    assert (row["nats"], row["gaussian"]) == (expected.nats, expected.gaussian)


def test_a_picture_twice_in_one_batch_has_no_bound(prior: Prior) -> None:
    assert bound(prior, "dp:10+batch:8", pictures=8)
    assert bound(prior, "dp:10+batch:8", pictures=7) is None


def test_the_shuffled_picture_has_none_since_the_prior_is_about_the_other(prior: Prior) -> None:
    assert bound(prior, "dp:10+mjp:0.5", "b") is None
    assert bound(prior, "dp:10+mjp:0.5", "c")


def test_lines(prior: Prior) -> None:
    rows = [
        {"model": "m", "defence": text, "setting": "a", "bound": bound(prior, text)}
        for text in ("none", "dp:100", "dp:0")
    ]
    strong, none = bound_lines(rows)
    assert all(part in strong for part in ("dp:100", "one update", " dB if"))
    assert none.count("any amount") == 2
