"""The gradient of one loss over a batch too large for one graph: gradient caching (Gao et al., 2021).

    1. embed every chunk without a graph              memory of one chunk, and of all embeddings
    2. the loss of all embeddings of all processes    gives a gradient for every embedding
    3. embed every chunk again, and push them through memory of one chunk

The result is the gradient of the whole batch: every picture has all captions of all chunks and all processes as its
negatives. A single chunk is embedded once.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from mjp.aladin.training.compared import Sides, gathered, joined, leaves, push_gradients
from mjp.common.distributed import World

Chunk = Callable[[], Sides]  # computes the same values every time, dropout included


def cached_backward(
    chunks: list[Chunk],
    losses: Callable[[Sides], dict[str, Tensor]],
    world: World,
    scale: Callable[[Tensor], Tensor] = lambda loss: loss,
) -> dict[str, Tensor]:
    """Add this process's part of the gradient to the parameters; the parts of the loss, the same in all processes."""
    single = len(chunks) == 1
    with torch.set_grad_enabled(single):
        outputs = [chunk() for chunk in chunks]
    cuts = [leaves(output) for output in outputs]
    parts = losses(gathered(joined(cuts), world))
    scale(torch.stack(list(parts.values())).sum()).backward()
    for chunk, output, cut in zip(chunks, outputs, cuts, strict=True):
        push_gradients(output if single else chunk(), cut)
    return parts


def sum_gradients(parameters: Iterable[nn.Parameter], shared: Iterable[nn.Parameter], world: World) -> None:
    """Sum the parts of all processes; `shared` parameters of the loss itself have their whole gradient in each."""
    if world.size == 1:
        return
    for parameter in shared:
        if parameter.grad is not None and not world.leads:
            parameter.grad.zero_()
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    vector_to_parameters(world.sum(parameters_to_vector(gradients)), gradients)
