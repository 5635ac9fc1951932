"""Between Flower's records and tensors by parameter name."""

from collections.abc import Mapping, Sequence
from typing import Any

from flwr.app import ArrayRecord, MetricRecord, RecordDict
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


def make_alike(replies: Sequence[Any], sent: Mapping[str, Tensor]) -> None:
    """Give replies the same records under the same names, as FedAvg wants it: a client with others must not stop it.

    Weights get the number type of those that were `sent`: FedAvg averages in that of one reply, and a client that sends
    half precision would cost all others their small steps. Of the metrics stay those that every client sent, as numbers
    or as lists of one length.
    """
    metrics = [first_metrics(reply.content) for reply in replies]
    names = [
        name
        for name in metrics[0]
        if all(name in one for one in metrics) and len({_shape(one[name]) for one in metrics}) == 1
    ]
    first = replies[0].content
    arrays_key, metrics_key = next(iter(first.array_records)), next(iter(first.metric_records))
    for reply, values in zip(replies, metrics, strict=True):
        weights = tensors_of(reply.content)
        records = {
            arrays_key: arrays_of({name: tensor.to(sent[name].dtype) for name, tensor in weights.items()}),
            metrics_key: MetricRecord({name: values[name] for name in names}),
        }
        configs = {name: record for name, record in reply.content.config_records.items() if name not in records}
        reply.content = RecordDict({**records, **configs})


def _shape(value: Any) -> int | None:
    return len(value) if isinstance(value, list) else None
