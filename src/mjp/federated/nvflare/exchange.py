"""Between NVFlare's data exchange objects and tensors by parameter name."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from nvflare.apis.dxo import DataKind, from_shareable
from torch import Tensor

SENT = "mjp_weights_sent"  # in the FLContext: what went out with the task that is being worked on
META = "mjp"  # in a result's meta: what is public about the update (batch, steps, lr)
FIGURES = "mjp_leak_audit"  # in a result's meta: figures of the audit
ROUND = "current_round"  # header of tasks and results
WEIGHTS = (DataKind.WEIGHTS, DataKind.WEIGHT_DIFF)


class Sent(NamedTuple):
    """The weights of a task, and its round, from 1."""

    weights: dict[str, Tensor]
    round: int


def read_dxo(shareable: Any) -> Any:
    """The data exchange object of a task or result; None if it holds something else."""
    try:
        return from_shareable(shareable)
    except Exception:  # whatever is in there, it is not one
        return None


def tensors_of(data: Mapping[str, Any]) -> dict[str, Tensor]:
    """Copies of the arrays by name: what is sent out may be trained in place."""
    return {name: _tensor(value) for name, value in data.items()}


def weights_after(dxo: Any, before: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The client's weights after its local steps, from whole weights or from differences."""
    tensors = tensors_of(dxo.data)
    if dxo.data_kind == DataKind.WEIGHTS:
        return tensors
    return {name: before[name].to(change) + change if name in before else change for name, change in tensors.items()}


def round_of(shareable: Any) -> int:
    """The round of a task, from 1; NVFlare counts from 0."""
    number = shareable.get_header(ROUND, None)
    return number + 1 if isinstance(number, int) else 0


def _tensor(value: Any) -> Tensor:
    return value.detach().cpu().clone() if isinstance(value, Tensor) else torch.from_numpy(np.array(value))
