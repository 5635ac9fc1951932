"""Arguments out of range are refused in one short sentence."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mjp.common.errors import InputError
from mjp.common.validate import check_options, fraction, number, seed, whole, workers


@pytest.mark.parametrize("value", [-1, 2**63, 10**5000, 1.0, True, None, "3", float("nan")], ids=type)
def test_a_seed_is_a_whole_number_that_every_generator_takes(value: Any) -> None:
    with pytest.raises(InputError, match="--seed must be a whole number from 0 to 9223372036854775807") as caught:
        check_options(SimpleNamespace(seed=value))
    assert len(str(caught.value)) < 180
    assert seed("--seed", 2**63 - 1) == 2**63 - 1


def test_workers_are_counted_and_bounded() -> None:
    assert workers("--workers", np.int64(0)) == 0
    for value in (-1, 10**6):
        with pytest.raises(InputError, match="--workers must be"):
            check_options(SimpleNamespace(seed=0, workers=value))
    check_options(SimpleNamespace(other=1))


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), float("inf"), 10**400, True, "0.5", None], ids=str)
def test_a_fraction_is_between_0_and_1(value: Any) -> None:
    with pytest.raises(InputError, match="ratio must lie between 0 and 1"):
        fraction("ratio", value)


def test_bounds_are_part_of_the_range() -> None:
    assert (whole("n", 3, least=3, most=3), number("x", 0, least=0), fraction("r", 1)) == (3, 0.0, 1.0)
