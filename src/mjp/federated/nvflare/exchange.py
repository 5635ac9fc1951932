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
DXO_KEY = "DXO"  # where a Shareable keeps its data exchange object
ROUND = "current_round"  # header of tasks and results
KINDS = {DataKind.WEIGHTS: "fedavg", DataKind.WEIGHT_DIFF: "delta"}  # of updates, as an UpdateInfo has them


class Sent(NamedTuple):
    """The weights of a task, its round, from 1, and on the server the clients that fetched it."""

    weights: dict[str, Tensor]
    round: int
    clients: tuple[str, ...] = ()


def read_dxo(shareable: Any) -> Any:
    """The data exchange object of a task or result; None if it holds something else."""
    try:
        return from_shareable(shareable)
    except Exception:  # whatever is in there, it is not one
        return None


def tensors_of(data: Mapping[str, Any]) -> dict[str, Tensor]:
    """Copies of the arrays by name: what is sent out may be trained in place."""
    return {name: _tensor(value) for name, value in data.items()}


def change_kind(dxo: Any, kind: str, before: Mapping[str, Tensor]) -> None:
    """Make differences of whole weights, or the other way round."""
    sign = 1 if kind == DataKind.WEIGHTS else -1
    arrays = {
        name: tensor.numpy() if isinstance(dxo.data[name], np.ndarray) else tensor for name, tensor in before.items()
    }
    dxo.data = {name: value + sign * arrays[name] for name, value in dxo.data.items()}
    dxo.data_kind = kind


def change_types(dxo: Any, before: Mapping[str, Tensor]) -> None:
    """Give the arrays the number types of the weights that went out: FedAvg averages in those of one result."""
    for name, value in dxo.data.items():
        if name in before:
            tensor = _tensor(value).to(before[name].dtype)
            dxo.data[name] = tensor if isinstance(value, Tensor) else tensor.numpy()


def amount_aside(shareable: Any, dxo: Any) -> int:
    """How many numbers and characters a result holds beside the data of its exchange object."""
    content = {name: value for name, value in shareable.items() if dxo is None or name != DXO_KEY}
    return amount(content) + (0 if dxo is None else amount(dxo.meta))


def amount(value: Any) -> int:
    """Numbers and characters in a value."""
    if isinstance(value, Mapping):
        return sum(amount(name) + amount(item) for name, item in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return sum(amount(item) for item in value)
    if isinstance(value, str | bytes | bytearray):
        return len(value)
    if isinstance(value, Tensor | np.ndarray):
        return int(value.numel() if isinstance(value, Tensor) else value.size)
    return 1


def round_of(shareable: Any) -> int:
    """The round of a task, from 1; NVFlare counts from 0."""
    number = shareable.get_header(ROUND, None)
    return number + 1 if isinstance(number, int) else 0


def peer_of(fl_ctx: Any) -> str:
    """The client at the other end."""
    peer = fl_ctx.get_peer_context()
    return str(peer.get_identity_name()) if peer else ""


def _tensor(value: Any) -> Tensor:
    return value.detach().cpu().clone() if isinstance(value, Tensor) else torch.from_numpy(np.array(value))
