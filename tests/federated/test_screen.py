"""What may be averaged: the model that was sent, complete and finite."""

import math

import pytest
import torch
from torch import Tensor

from mjp.federated.screen import fault_of

SENT = {"a": torch.zeros(2, 2), "b": torch.zeros(3)}


def test_the_same_model_passes() -> None:
    assert fault_of({name: torch.ones_like(tensor) for name, tensor in SENT.items()}, SENT) == ""


@pytest.mark.parametrize(
    ("update", "fault"),
    [
        ({"a": torch.zeros(2, 2)}, "incomplete: b is missing"),
        ({**SENT, "c": torch.zeros(1)}, "another model: c"),
        ({**SENT, "b": torch.zeros(4)}, r"another model: b has shape \(4,\)"),
        ({**SENT, "b": torch.tensor([0, math.nan, 0])}, "b holds NaN"),
        ({**SENT, "b": torch.zeros(3, dtype=torch.complex64)}, "b holds numbers of type torch.complex64"),
        ({}, "a is missing and 1 more"),
    ],
)
def test_others_do_not(update: dict[str, Tensor], fault: str) -> None:
    import re

    assert re.search(fault, fault_of(update, SENT))
