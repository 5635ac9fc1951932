"""Two processes compute what one would compute alone, and all do the same thing at the same time."""

import os
import sys
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from mjp.cli.main import main
from mjp.common.distributed import join
from mjp.common.errors import InputError
from mjp.training.config import TrainConfig
from mjp.training.engine import Run, train
from processes import in_two_processes
from training.runs import (
    ALONE,
    RANDOM,
    make_pictures,
    metrics,
    settings,
    tensors,
    train_task,
    weights,
)

SGD = {"opt": "sgd", "input_size": 32}  # no division by small gradients: rounding errors stay small


def together(config: TrainConfig) -> Path:
    assert in_two_processes(train_task, config) == [0, 0]
    return config.folder


def assert_close(ours: Path, theirs: Path) -> None:
    left, right = tensors(ours), tensors(theirs)
    assert left.keys() == right.keys()
    for name in left:
        assert torch.allclose(left[name], right[name], rtol=1e-4, atol=2e-6), name


def test_one_process_is_a_world_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    with join("cpu") as world:
        assert world == ALONE
        assert world.leads
        assert world.agree(True)
        assert not world.agree(False)
        assert world.unite({"a"}) == {"a"}
        assert world.sum(torch.ones(2)).tolist() == [1, 1]
        world.wait()
        assert not dist.is_initialized()


@pytest.mark.parametrize("name", ["gpu", "cuda:99" if torch.cuda.is_available() else "cuda"])
def test_a_device_that_is_not_there_is_bad_input(name: str) -> None:
    with pytest.raises(InputError, match=f"device '{name}' is not available here"), join(name):
        pass


def agree_task() -> None:
    with join("cpu") as world:
        assert world.size == 2
        assert world.sum(torch.tensor([1.0 + world.rank])).item() == 3
        assert world.agree(world.rank == 0)
        assert not world.agree(world.rank == 1)
        assert world.unite({"both", f"of {world.rank}"}) == {"both", "of 0", "of 1"}


def test_processes_sum_agree_with_the_leader_and_unite_what_they_know() -> None:
    assert in_two_processes(agree_task) == [0, 0]


ALIVE: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()


def failing_step() -> None:
    """A step that fails while DDP is known to a local variable and to a cycle."""
    parallel = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    parallel.itself = [parallel]  # type: ignore[assignment]
    ALIVE.add(parallel)
    parallel(torch.ones(1, 2)).sum().backward()
    raise InputError("a bad step")


def order_task() -> None:
    destroy = dist.destroy_process_group

    def destroy_the_last(group: Any = None) -> None:
        assert not ALIVE
        destroy(group)

    dist.destroy_process_group = destroy_the_last
    try:
        with join("cpu"):
            failing_step()
    except InputError as error:
        sys.exit(str(error) != "a bad step")


def test_ddp_is_freed_before_its_process_group() -> None:
    # the other order stops for good now and then: gloo waits for Python's lock, which waits for gloo
    assert in_two_processes(order_task) == [0, 0]


def test_two_processes_are_one_that_accumulates(data: Path, tmp_path: Path) -> None:
    random: dict[str, Any] = {**RANDOM, **SGD, "batch_size": 4}
    two = together(settings(data, tmp_path / "two", **random))
    train(settings(data, tmp_path / "one", accumulate=2, **random))
    assert_close(two, tmp_path / "one")
    for ours, theirs in zip(metrics(two), metrics(tmp_path / "one"), strict=True):
        assert ours.pop("kind") == theirs.pop("kind")
        assert ours == pytest.approx(theirs, rel=1e-4)


def plans_task(config: TrainConfig) -> None:
    """Every process sees its own rows of a step's plan, and a model draws its own plans in every process."""
    with join("cpu") as world:
        run = Run(config, world)
        plans: list[Any] = []
        run.model.register_forward_pre_hook(lambda _module, inputs: plans.append(inputs[1].permutation.tolist()))
        run.update(run.network(), next(run.batches(0)))
        drawn = run.model.sample_plan(torch.zeros(8, 3, 32, 32)).permutation.tolist()
        everyone: list[Any] = [None, None]
        dist.all_gather_object(everyone, (plans, drawn))
        (left, left_drawn), (right, right_drawn) = everyone
        whole = run.jigsaws.draw(torch.zeros(1, 3, 32, 32), step=0).permutation.tolist()
        assert [row for pair in zip(left[0], right[0], strict=True) for row in pair] == whole
        assert left[0] != right[0]
        assert left_drawn != right_drawn


def test_every_process_has_its_own_plans(data: Path, tmp_path: Path) -> None:
    assert in_two_processes(plans_task, settings(data, tmp_path, input_size=32)) == [0, 0]


def test_two_processes_are_one_with_twice_the_batch(data: Path, tmp_path: Path) -> None:
    two = together(settings(data, tmp_path / "two", batch_size=4, accumulate=2, epochs=1, **SGD))
    train(settings(data, tmp_path / "one", batch_size=16, epochs=1, **SGD))
    assert_close(two, tmp_path / "one")


def clocks_disagree_task(config: TrainConfig) -> None:
    """One process thinks that a checkpoint is due at every step, the other that it never is."""
    if os.environ["RANK"] == "1":
        time.monotonic = lambda: 0.0
    train(config)


def test_two_processes_save_at_the_same_steps_and_continue_to_the_same_bits(data: Path, tmp_path: Path) -> None:
    changes: dict[str, Any] = {**RANDOM, "batch_size": 4, "checkpoint_minutes": 0}
    whole = together(settings(data, tmp_path / "whole", **changes))
    stopped = settings(data, tmp_path / "stopped", stop_after=4, **changes)
    assert in_two_processes(clocks_disagree_task, stopped) == [0, 0]
    assert {path.name for path in (tmp_path / "stopped" / "checkpoints").iterdir()} == {"last.pt", "previous.pt"}
    resumed = together(settings(data, tmp_path / "stopped", **changes))
    assert weights(resumed) == weights(whole)
    assert metrics(resumed) == metrics(whole)


def test_two_processes_count_every_unreadable_picture_once(tmp_path: Path) -> None:
    root = make_pictures(tmp_path / "data")
    for name in ("train/dark/00.png", "train/dark/01.png", "train/bright/05.png", "val/dark/00.png", "val/dark/01.png"):
        (root / name).write_bytes(b"")
    run = together(settings(root, tmp_path / "run", batch_size=4, max_unreadable=5))
    assert [line["unreadable"] for line in metrics(run) if line["kind"] == "epoch"] == [5, 5]
    assert [line["val_pictures"] for line in metrics(run) if line["kind"] == "epoch"] == [16, 16]


@pytest.mark.parametrize("preset", ["reference", "plain"])
def test_steps_without_a_jigsaw_do_not_upset_two_processes(data: Path, tmp_path: Path, preset: str) -> None:
    # in some steps of the authors' preset no slot is masked, and E_unk gets no gradient
    mjp = {"start_epoch": 1} if preset == "reference" else {}
    assert metrics(together(settings(data, tmp_path, preset=preset, batch_size=4, mjp=mjp)))[-1]["epoch"] == 2


def bad_step_task(arguments: list[str]) -> None:
    sys.exit(main(arguments))


def test_both_processes_stop_at_a_bad_step(data: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(
        settings(data, tmp_path / "run", batch_size=4, lr=1e30, clip_grad=None, opt="sgd", warmup_epochs=0).to_yaml()
    )
    assert in_two_processes(bad_step_task, ["train", "--recipe", str(tmp_path / "bad.yaml")]) == [2, 2]
    assert (tmp_path / "run" / "checkpoints" / "last.pt").exists()
