"""Between Flower's records and tensors by parameter name."""

from collections.abc import Mapping
from typing import Any

from flwr.app import ArrayRecord
from torch import Tensor


def tensors_of(records: Any) -> dict[str, Tensor]:
    """The tensors of the one ArrayRecord in a RecordDict; ValueError if there is not exactly one."""
    arrays = list(records.array_records.values())
    if len(arrays) != 1:
        raise ValueError(f"{len(arrays)} ArrayRecords instead of one")
    return dict(arrays[0].to_torch_state_dict())


def arrays_of(weights: Mapping[str, Tensor]) -> Any:
    """Weights as an ArrayRecord; for an MJP model take model.weights(), which leave its generator out."""
    return ArrayRecord({name: tensor.detach().cpu() for name, tensor in weights.items()})


def first_metrics(records: Any) -> dict[str, Any]:
    """The metrics of the first MetricRecord, {} if there is none."""
    return dict(next(iter(records.metric_records.values()), {}))


def first_config(records: Any) -> dict[str, Any]:
    """The values of the first ConfigRecord, {} if there is none."""
    return dict(next(iter(records.config_records.values()), {}))
