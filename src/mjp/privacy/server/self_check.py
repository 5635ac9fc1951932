"""What an attacker can check alone: which labels an update tells, and whether a reconstruction explains the update.

Labels   for cross entropy ∂L/∂(bias of the classifier) = mean over the batch of (softmax − one-hot): the classes that
         were there have the most negative entries, and only such a class can have a negative one.
Match    the gradient of a reconstruction, computed with the public model, must point where the update points.
"""

from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import cosine_similarity, cross_entropy

from mjp.method.plan import Plan, identity_plan
from mjp.pictures.tensors import normalise
from mjp.privacy.server.view import Refused, View
from mjp.privacy.update import plain_name

CONVINCING = 0.97  # cosine: enough for an attack to go on with a picture, of which half the patches may still be wrong
EXPLAINED = 0.999  # cosine: enough to tell a person so


def recover_labels(view: View) -> Tensor:
    """(B,) labels, most certain first."""
    names = [name for name in ("head.bias", "head.weight") if name in view.gradients]
    if not names:
        raise Refused("the update lacks the gradients of the classifier, which tell the labels")
    if names[0] == "head.weight":  # no bias: a row of the weights is (softmax − one-hot) · features
        rows = view.gradients["head.weight"]
        if view.facts.batch > 1:
            raise Refused("without the gradient of head.bias the labels of several pictures cannot be told apart")
        return (rows @ rows.sum(0) - rows.square().sum(1)).argmin().unsqueeze(0)
    gradient = view.gradients["head.bias"]
    present = gradient.argsort()[: min(view.facts.batch, max(1, int((gradient < 0).sum())))]
    with torch.no_grad():
        guess = normalised(view, view.prior.mean.unsqueeze(0))
        expected = view.model.eval()(guess.to(next(view.model.parameters()))).double().softmax(1)[0]
    left = view.facts.batch * (expected - gradient)  # about how often each class was there
    left[present] -= 1
    labels = list(present)
    while len(labels) < view.facts.batch:
        labels.append(left.argmax())
        left[labels[-1]] -= 1
    return torch.stack(labels)


def public_plan(view: View) -> Plan:
    """What is public of the client's jigsaws: the mask. The order of masked patches is not in the gradient."""
    plan = identity_plan(view.facts.batch, view.grid)
    if view.model.unknown is None or "pos_embed" not in view.gradients or not bool(view.mask.any()):
        return plan
    return plan._replace(mask=view.mask.expand(view.facts.batch, -1), budget=int(view.mask.sum()))


def simulate(view: View, images: Tensor, labels: Tensor, plan: Plan, *, keep: bool = False) -> dict[str, Tensor]:
    """The gradients that normalised pictures would have given, by the names of the update; `keep` for second order.

    FedAvg: the mean over as many local steps as the client made. What is not in the update is taken as not trained.
    """
    parameters = {name: p.detach().requires_grad_() for name, p in view.model.named_parameters()}
    means: dict[str, Any] = {name: 0.0 for name in parameters if plain_name(name) in view.gradients}
    for _ in range(view.facts.steps):
        out = functional_call(view.model, parameters, (images, plan))
        loss = cross_entropy(out.logits, labels) + view.facts.localize_weight * out.dal
        wanted = [parameters[name] for name in means]
        found = torch.autograd.grad(loss, wanted, create_graph=keep, materialize_grads=True)
        for name, gradient in zip(means, found, strict=True):
            means[name] = means[name] + gradient / view.facts.steps
            parameters[name] = parameters[name] - view.facts.lr * gradient
    return {plain_name(name): gradient for name, gradient in means.items()}


def match(view: View, pictures: Tensor, labels: Tensor | None = None, plan: Plan | None = None) -> float:
    """Cosine between the update and the gradient of (B, 3, H, W) pictures in [0, 1]; without a plan, the public one."""
    labels = recover_labels(view) if labels is None else labels
    like = next(view.model.parameters())
    found = simulate(view, normalised(view, pictures).to(like), labels, plan or public_plan(view))
    mine = torch.cat([found[name].flatten().double() for name in view.gradients])
    theirs = torch.cat([gradient.flatten() for gradient in view.gradients.values()])
    return float(cosine_similarity(mine, theirs, 0))


def explains(view: View, picture: Tensor) -> bool:
    """Whether a (3, H, W) picture is good enough to believe; without labels, or for several pictures, it is not."""
    if view.facts.batch > 1:
        return False
    try:
        return match(view, picture.clamp(0, 1).unsqueeze(0)) > CONVINCING
    except Refused:
        return False


def normalised(view: View, pictures: Tensor) -> Tensor:
    return normalise(pictures, view.facts.mean, view.facts.std)
