"""Where a model stands in drawing its plans: saved with its weights, different in every process, never repeated."""

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import Tensor

import mjp
from method.tiny import cnn, pictures, vit


def fresh(**changes: Any) -> mjp.MJP:
    return mjp.MJP(vit(), mjp.variant("J", ratio=0.5, **changes)).train()


def draws(model: mjp.MJP, count: int = 3) -> list[list[int]]:
    return [model.sample_plan(pictures()).permutation.flatten().tolist() for _ in range(count)]


def in_process(monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_rank", lambda: rank)


def through_torch(state: dict[str, Tensor], folder: Path) -> dict[str, Tensor]:
    torch.save(state, folder / "state.pt")
    loaded: dict[str, Tensor] = torch.load(folder / "state.pt", weights_only=True)
    return loaded


def through_safetensors(state: dict[str, Tensor], folder: Path) -> dict[str, Tensor]:
    save_file(state, folder / "state.safetensors")
    return load_file(folder / "state.safetensors")


@pytest.mark.parametrize("through", [through_torch, through_safetensors])
def test_a_state_dict_resumes_epoch_and_plans(through: Any, tmp_path: Path) -> None:
    model = fresh(start_epoch=2)
    model.epoch = 5
    draws(model)
    state = through(model.state_dict(), tmp_path)
    expected = draws(model)
    resumed = fresh(start_epoch=2)
    resumed.load_state_dict(state)
    assert resumed.epoch == 5
    assert torch.equal(resumed.state_dict()["_extra_state"], state["_extra_state"])  # also before the first draw
    assert draws(resumed) == expected
    assert draws(resumed) == draws(model)


def test_a_training_loop_of_ones_own_resumes_bit_for_bit() -> None:
    def train(model: mjp.MJP, optimizer: torch.optim.Optimizer, steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            out = model(pictures())
            (out.logits.square().mean() + out.dal).backward()
            optimizer.step()

    def start() -> tuple[mjp.MJP, torch.optim.Optimizer]:
        torch.manual_seed(0)  # of the weights
        model = fresh()
        return model, torch.optim.SGD(model.parameters(), lr=1e-2)

    whole, parts = start(), start()
    train(*whole, steps=4)
    train(*parts, steps=2)
    saved = copy.deepcopy((parts[0].state_dict(), parts[1].state_dict()))
    resumed = start()
    resumed[0].load_state_dict(saved[0])
    resumed[1].load_state_dict(saved[1])
    train(*resumed, steps=2)
    assert all(torch.equal(a, b) for a, b in zip(resumed[0].parameters(), whole[0].parameters(), strict=True))


def test_copies_and_pickles_of_a_resumed_model_draw_alike() -> None:
    model = fresh()
    draws(model)
    resumed = fresh()
    resumed.load_state_dict(model.state_dict())
    copies = [copy.deepcopy(resumed), pickle.loads(pickle.dumps(resumed))]
    expected = draws(model)
    assert [draws(other) for other in (resumed, *copies)] == [expected] * 3


def test_older_files_and_weights_alone_leave_the_generator_as_it_is() -> None:
    model = fresh()
    model.epoch = 3
    draws(model)
    expected = draws(copy.deepcopy(model))
    for weights in (model.weights(), model.model.state_dict()):
        assert "_extra_state" not in weights
        model.load_state_dict(weights)
    assert model.epoch == 3
    assert draws(model) == expected


def test_one_processs_state_makes_different_plans_in_every_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 saves, all load: rank 0 goes on exactly, the others draw what nobody has drawn."""
    model = fresh()
    past = draws(model)
    state = model.state_dict()
    future = []
    for rank in range(3):
        in_process(monkeypatch, rank)
        resumed = fresh()
        resumed.load_state_dict(state)
        future.append(draws(resumed))
    in_process(monkeypatch, 0)
    assert future[0] == draws(model)
    plans = [str(plan) for run in (past, *future) for plan in run]
    assert len(set(plans)) == len(plans)


def test_processes_draw_different_plans_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    for rank in range(3):
        in_process(monkeypatch, rank)
        runs.append(str(draws(fresh())))
    assert len(set(runs)) == 3


@pytest.mark.parametrize("state", [{"epoch": 3}, torch.zeros(3), torch.zeros(8, dtype=torch.uint8)])
def test_a_foreign_state_is_refused(state: Any) -> None:
    model = fresh()
    with pytest.raises(mjp.InputError, match="_extra_state of these weights is not the state of an MJP model"):
        model.load_state_dict({**model.state_dict(), "_extra_state": state})


# --- small grids ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ("paper", r"ratio=0\.03 masks nothing, on a grid of 4x4: .*smallest ratio that moves patches here is 0\.125"),
        (mjp.variant("G", ratio=0.1), r"ratio=0\.1 masks one patch, which has nowhere to go"),
    ],
)
def test_a_ratio_that_moves_nothing_is_named_at_construction(config: Any, sentence: str) -> None:
    with pytest.warns(UserWarning, match=sentence):
        mjp.MJP(vit(), config)


def test_the_smallest_ratio_that_is_offered_works_and_nothing_below_it() -> None:
    with pytest.warns(UserWarning, match=r"smallest ratio that moves patches here is 0\.0409"):
        mjp.MJP(vit(img_size=56), "paper")  # the grid of a ViT/32
    for ratio, masked in ((0.0409, 2), (0.0408, 1)):
        plan = mjp.sample_plan(2, (7, 7), ratio, generator=torch.Generator())
        assert plan.mask.sum(1).tolist() == [masked, masked]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "config",
    [mjp.variant("J", ratio=0.0), mjp.variant("D"), mjp.variant("C"), "paper-privacy", mjp.variant("G", ratio=0.13)],
)
def test_a_ratio_that_works_or_is_zero_on_purpose_is_not_warned_about(config: Any) -> None:
    mjp.MJP(vit(), config)


@pytest.mark.filterwarnings("error")
def test_loading_a_model_gives_no_advice_for_training_it(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="no patch ever moves"):
        mjp.MJP(vit("deit_tiny_patch16_224"), "paper").save_pretrained(tmp_path)
    mjp.MJP.from_pretrained(tmp_path)
    mjp.MJP(cnn(), mjp.variant("E", cell=32))  # a network that takes any size: nothing is known of its grid
