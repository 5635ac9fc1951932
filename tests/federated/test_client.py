"""A client: what is random about its update comes from its key, and cannot be asked for twice."""

from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from clients import pictures
from federated.updates import model
from mjp.common.secret_key import SecretKey
from mjp.federated.client import LocalClient
from mjp.models import as_subject

Weights = dict[str, Tensor]


def client(defence: str, key: SecretKey) -> LocalClient:
    return LocalClient(as_subject(model()), pictures(1).float(), torch.tensor([3]), defence=defence, lr=0.1, key=key)


def noise(weights: Weights, key: SecretKey) -> Tensor:
    """What noise added to an update of round 1; it is so large that clipping does not matter beside it."""
    noisy, plain = (client(defence, key).train(weights, 1).weights for defence in ("noise:100", "none"))
    return torch.cat([(noisy[name] - plain[name]).double().flatten() for name in plain])


def start() -> Weights:
    return {name: tensor.clone() for name, tensor in client("none", SecretKey.simulated(0)).network.weights().items()}


def test_a_server_that_asks_for_a_round_again_with_other_weights_cannot_cancel_the_noise(tmp_path: Path) -> None:
    key = SecretKey.open(tmp_path / "key")
    weights = start()
    others = {name: 1.01 * tensor for name, tensor in weights.items()}
    assert torch.equal(noise(weights, key), noise(start(), key))  # a run that continues repeats a round to the bit
    assert abs(float(cosine_similarity(noise(weights, key), noise(others, key), 0))) < 0.1


def test_two_clients_have_nothing_random_in_common(tmp_path: Path) -> None:
    first, second = (noise(start(), SecretKey.open(tmp_path / name)) for name in ("a", "b"))
    assert abs(float(cosine_similarity(first, second, 0))) < 0.1
