"""What an attacker can check alone: the labels that an update reveals, and whether a reconstruction explains it.

Labels   for cross entropy ∂L/∂(bias of the classifier) = mean over the batch of (softmax − one-hot): the classes in the
         batch have the most negative entries, and no other class can have a negative one.
Match    the gradient of a reconstruction, computed with the public model, must point where the update points.
"""

from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import cosine_similarity, cross_entropy

from mjp.common.parameter_names import plain_name
from mjp.method.plan import Plan, identity_plan
from mjp.pictures.tensors import normalise
from mjp.privacy.server.view import Refused, View

CONVINCING = 0.97  # cosine: enough for an attack to accept a picture, half of whose patches may still be wrong
EXPLAINED = 0.999  # cosine: enough to tell a person that the picture explains the update


def recover_labels(view: View) -> Tensor:
    """(B,) labels, most certain first."""
    names = [name for name in ("head.bias", "head.weight") if name in view.gradients]
    if not names:
        raise Refused("the update lacks the gradients of the classifier, which tell the labels")
    if names[0] == "head.weight":  # no bias: a row of the weights is (softmax − one-hot) · features
        rows = view.gradients["head.weight"]
        if view.info.batch > 1:
            raise Refused("without the gradient of head.bias the labels of several pictures cannot be told apart")
        return (rows @ rows.sum(0) - rows.square().sum(1)).argmin().unsqueeze(0)
    gradient = view.gradients["head.bias"]
    present = gradient.argsort()[: min(view.info.batch, max(1, int((gradient < 0).sum())))]
    with torch.no_grad():
        guess = normalised(view, view.prior.mean.unsqueeze(0))
        expected = view.model.eval()(guess.to(next(view.model.parameters()))).double().softmax(1)[0]
    counts = view.info.batch * (expected - gradient)  # roughly how often each class occurs
    counts[present] -= 1
    labels = list(present)
    while len(labels) < view.info.batch:
        labels.append(counts.argmax())
        counts[labels[-1]] -= 1
    return torch.stack(labels)


def public_plan(view: View) -> Plan:
    """The public part of the client's jigsaw: the mask. The order of masked patches is not in the gradient."""
    plan = identity_plan(view.info.batch, view.grid)
    if view.model.unknown is None or "pos_embed" not in view.gradients or not bool(view.mask.any()):
        return plan
    return plan._replace(mask=view.mask.expand(view.info.batch, -1), budget=int(view.mask.sum()))


def simulate(view: View, images: Tensor, labels: Tensor, plan: Plan, *, keep_graph: bool = False) -> dict[str, Tensor]:
    """The gradients that normalised pictures would give, by the names of the update; `keep_graph` for second order.

    FedAvg: the mean over as many local steps as the client made, with its momentum. What is not in the update is
    assumed to be frozen.
    """
    parameters = {name: p.detach().requires_grad_() for name, p in view.model.named_parameters()}
    means: dict[str, Any] = {name: 0.0 for name in parameters if plain_name(name) in view.gradients}
    velocity: dict[str, Any] = dict.fromkeys(means, 0.0)
    for _ in range(view.info.steps):
        out = functional_call(view.model, parameters, (images, plan))
        loss = cross_entropy(out.logits, labels) + view.info.localize_weight * out.dal
        inputs = [parameters[name] for name in means]
        gradients = torch.autograd.grad(loss, inputs, create_graph=keep_graph, materialize_grads=True)
        for name, gradient in zip(means, gradients, strict=True):
            velocity[name] = view.info.inertia * velocity[name] + gradient
            means[name] = means[name] + velocity[name] / view.info.steps
            parameters[name] = parameters[name] - view.info.lr * velocity[name]
    return {plain_name(name): gradient for name, gradient in means.items()}


def match(view: View, pictures: Tensor, labels: Tensor | None = None, plan: Plan | None = None) -> float:
    """Cosine between the update and the gradient of (B, 3, H, W) pictures in [0, 1]; without a plan, the public one."""
    labels = recover_labels(view) if labels is None else labels
    like = next(view.model.parameters())
    simulated = simulate(view, normalised(view, pictures).to(like), labels, plan or public_plan(view))
    expected = torch.cat([simulated[name].flatten().double() for name in view.gradients])
    received = torch.cat([gradient.flatten() for gradient in view.gradients.values()])
    return float(cosine_similarity(expected, received, 0))


def explains(view: View, picture: Tensor) -> bool:
    """Whether a (3, H, W) picture is good enough to believe; never without labels, or for several pictures."""
    if view.info.batch > 1:
        return False
    try:
        return match(view, picture.clamp(0, 1).unsqueeze(0)) > CONVINCING
    except Refused:
        return False


def normalised(view: View, pictures: Tensor) -> Tensor:
    return normalise(pictures, view.info.mean, view.info.std)
