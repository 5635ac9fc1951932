"""What a server may average: tensors of the model that it sent out, complete and finite."""

from collections.abc import Mapping

import torch
from torch import Tensor


def fault_of(update: Mapping[str, Tensor], reference: Mapping[str, Tensor]) -> str:
    """Why an update cannot be averaged with the others, as a short reason; "" if it can."""
    if missing := sorted(reference.keys() - update.keys()):
        return f"incomplete: {missing[0]} is missing" + (f" and {len(missing) - 1} more" if len(missing) > 1 else "")
    if foreign := sorted(update.keys() - reference.keys()):
        return f"of another model: {foreign[0][:80]} is not in the one that was sent"
    for name, tensor in update.items():
        if tensor.shape != reference[name].shape:
            return f"of another model: {name[:80]} has shape {tuple(tensor.shape)}"
        if reference[name].is_floating_point() and not tensor.is_floating_point():
            return f"of another model: {name[:80]} holds numbers of type {tensor.dtype}"
        if not bool(torch.isfinite(tensor).all()):
            return f"{name[:80]} holds NaN or infinity"
    return ""
