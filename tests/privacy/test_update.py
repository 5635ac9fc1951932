"""What leaves a client: the files, what is refused, and that nothing secret is in them."""

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from clients import send, tiny
from mjp.common.errors import InputError
from mjp.privacy.info import UpdateInfo
from mjp.privacy.update import Update, gradients_of, load_update


def same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> bool:
    return found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("defence", ["none", "mjp:0.5+bf16", "withheld-pe", "fedavg:2", "mjp:0.5+fedavg:2"])
def test_a_file_holds_the_whole_update(defence: str, tmp_path: Path) -> None:
    _, update, _ = send(tiny(), defence)
    update.save(tmp_path / "new" / "update.safetensors")
    found = load_update(tmp_path / "new" / "update.safetensors")
    assert found.info == update.info
    assert same(found.tensors, update.tensors)
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["update.json", "update.safetensors"]


def test_names_of_wrapped_and_bare_models_and_their_order_do_not_matter() -> None:
    network, update, _ = send(tiny())
    plain = gradients_of(update, network)
    assert "pos_embed" in plain
    bare = dict(reversed(plain.items()))
    for prefix in ("", "model.", "module.", "module.model.", "_orig_mod.", "_module.", "module._orig_mod.model."):
        renamed = Update({prefix + name: g for name, g in bare.items()}, update.info)
        assert same(gradients_of(renamed, network), plain)
        assert same(gradients_of(renamed, network.unwrap()), plain)


def _put(name: str, change: Callable[[Tensor], Tensor]) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda tensors: {**tensors, name: change(tensors[name])}


HEAD = "model.head.bias"
BAD: dict[str, tuple[Callable[[dict[str, Tensor]], dict[str, Tensor]], str]] = {
    "foreign": (lambda tensors: {**tensors, "fc.weight": torch.ones(3)}, "fc.weight"),
    "shape": (_put(HEAD, lambda g: g[:-1]), "shape"),
    "nan": (_put(HEAD, lambda g: g.index_fill(0, torch.tensor([2]), torch.nan)), "NaN"),
    "infinite": (_put(HEAD, lambda g: g.index_fill(0, torch.tensor([2]), torch.inf)), "infinity"),
    "zero": (lambda tensors: {name: torch.zeros_like(g) for name, g in tensors.items()}, "zero"),
    "integer": (_put(HEAD, lambda g: g.long()), "int64"),
    "empty": (lambda _: {}, "no tensors"),
    "twice": (lambda tensors: {**tensors, "head.bias": tensors[HEAD]}, "twice"),
}


@pytest.mark.parametrize("case", BAD)
def test_tensors_that_are_no_gradient_of_the_model_are_refused(case: str) -> None:
    network, update, _ = send(tiny())
    change, reason = BAD[case]
    with pytest.raises(InputError, match=reason):
        gradients_of(Update(change(update.tensors), update.info), network)


@pytest.mark.parametrize("keep", [0, 5, 200, -1])
def test_a_truncated_file_is_refused(keep: int, tmp_path: Path) -> None:
    path = tmp_path / "update.safetensors"
    send(tiny())[1].save(path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(InputError, match="not a complete safetensors file"):
        load_update(path)


def test_an_absent_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no update"):
        load_update(tmp_path / "update.safetensors")


WRONG_INFO: list[Any] = [
    [1, 2],
    {"seed": 3},
    {"kind": "weights"},
    {"batch": 0},
    {"batch": 1.5},
    {"batch": True},
    {"size": 32},
    {"size": [32]},
    {"size": ["32", "32"]},
    {"mean": ["a", "b", "c"]},
    {"mean": [0.5]},
    {"mean": [0.5], "std": [0.5]},
    {"mean": [float("nan"), 0.5, 0.5]},
    {"std": [0.2, 0.2, 0.0]},
    {"localize_weight": "much"},
    {"defence": 3},
    {"kind": "fedavg"},
    {"steps": 4},
    {"kind": "fedavg", "steps": 10**7, "lr": 0.1},
    {"steps": 4, "lr": 0.1},
    {"kind": "fedavg", "lr": "0.1"},
    {"size": [10**6, 10**6]},
    {"localize_weight": 10**400},
    {"batch": 10**30},
    {"defence": {"a": [[[[[[[[1]]]]]]]]}},
]


@pytest.mark.parametrize("text", ['{"batch": 1', "", "\udcff", *map(json.dumps, WRONG_INFO)])
def test_information_that_makes_no_sense_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "update.safetensors"
    save_file({"head.bias": torch.ones(10)}, path)
    path.with_suffix(".json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InputError):
        load_update(path)


def test_defaults_hold_and_single_fields_can_be_stated(tmp_path: Path) -> None:
    path = tmp_path / "update.safetensors"
    save_file({"head.bias": torch.ones(10)}, path)
    assert load_update(path).info == UpdateInfo()
    assert load_update(path, size=(32, 32), batch=None).info == UpdateInfo(size=(32, 32))


def test_one_step_of_fedavg_is_the_gradient() -> None:
    network, update, _ = send(tiny(), "mjp:0.5")
    _, weights, _ = send(network, "mjp:0.5+fedavg:1")
    plain, found = gradients_of(update, network), gradients_of(weights, network)
    assert found.keys() == plain.keys()
    for name, gradient in plain.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("steps", [1, 4])
def test_weights_after_local_steps_become_the_mean_gradient_of_a_step(steps: int) -> None:
    """K steps of SGD with one gradient g move the weights by K·lr·g."""
    network, update, _ = send(tiny())
    gradients = gradients_of(update, network)
    before = {name: p.detach() for name, p in network.unwrap().named_parameters()}
    after = {name: before[name] - steps * 0.1 * gradient for name, gradient in gradients.items()}
    info = UpdateInfo(kind="fedavg", steps=steps, lr=0.1, size=(32, 32))
    means = gradients_of(Update(after, info), network)
    for name, gradient in gradients.items():
        torch.testing.assert_close(means[name], gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_eight_bit_floats_are_read(dtype: torch.dtype, tmp_path: Path) -> None:
    network, update, _ = send(tiny())
    small = {name: (64 * g).to(dtype) for name, g in update.tensors.items()}
    Update(small, update.info).save(tmp_path / "update.safetensors")
    gradients = gradients_of(load_update(tmp_path / "update.safetensors"), network)
    assert all(g.dtype == torch.float32 for g in gradients.values())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"head.bias": torch.ones(10, dtype=torch.complex64)}, "complex64"),
        ({"head.bias": torch.ones(10).to_sparse()}, "sparse"),
        ({"head.bias": torch.ones(1).expand(10**6)}, "does not hold them"),
        ({"head.bias": 3}, "not a tensor"),
        ({3: torch.ones(10)}, "tensors by parameter name"),
        ({}, "tensors by parameter name"),
        ([3], "not a tensor"),
    ],
)
def test_files_of_something_else_are_refused(content: Any, message: str, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "update.pt")
    with pytest.raises(InputError, match=message):
        load_update(tmp_path / "update.pt")


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    save_file({"head.bias": torch.ones(10)}, tmp_path / "update.safetensors")
    os.mkfifo(tmp_path / "update.json")
    with pytest.raises(InputError, match="not a regular file"):
        load_update(tmp_path / "update.safetensors")
    os.mkfifo(tmp_path / "pipe.safetensors")
    with pytest.raises(InputError, match="not a regular file"):
        load_update(tmp_path / "pipe.safetensors")


def test_nothing_secret_is_in_an_update(tmp_path: Path) -> None:
    network, update, secret = send(tiny(), "mjp:0.5", seed=987654)
    allowed = {"kind", "batch", "size", "mean", "std", "localize_weight", "defence", "steps", "lr"}
    allowed |= {"optimizer", "momentum", "weight_decay", "eps"}
    assert set(asdict(update.info)) == allowed
    assert set(update.tensors) == {name for name, _ in network.named_parameters()}
    update.save(tmp_path / "update.safetensors")
    text = (tmp_path / "update.json").read_text()
    assert set(json.loads(text)) == allowed
    assert "987654" not in text
    for tensor in update.tensors.values():
        assert tensor.shape != secret.images.shape
        assert not tensor.requires_grad  # a graph would lead back to the pictures


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_jigsaw_is_the_clients_own(seed: int) -> None:
    """A plan from the model's generator could be drawn again by whoever knows the public settings."""
    network, _, secret = send(tiny(), "mjp:0.9", seed=seed)
    before = network.generator.get_state()
    assert not torch.equal(network.sample_plan(secret.images).permutation, secret.plans[0].permutation)
    _, _, again = send(tiny(), "mjp:0.9", seed=seed)
    _, _, other = send(tiny(), "mjp:0.9", seed=seed + 10)
    assert torch.equal(again.plans[0].permutation, secret.plans[0].permutation)
    assert not torch.equal(other.plans[0].permutation, secret.plans[0].permutation)
    fresh, _, _ = send(tiny(), "mjp:0.9", seed=seed)
    assert torch.equal(fresh.generator.get_state(), before)  # making an update leaves the model's generator alone


def test_absurd_numbers_are_named() -> None:
    for absurd in ({"std": (1e-300, 1, 1)}, {"mean": (1e200, 0, 0)}, {"localize_weight": 1e30}):
        with pytest.raises(InputError, match="at most 1000"):
            UpdateInfo(**absurd)
