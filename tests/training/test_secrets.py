"""Training whose updates leave: jigsaws come from a secret key, and public information does not draw them again."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from mjp.common.errors import InputError
from mjp.common.key_path import default_path
from mjp.common.runs.checkpoint import load_checkpoint
from mjp.common.seeds import PLAN, derive_seed
from mjp.method.plan import Plan
from mjp.training.config import TrainConfig
from mjp.training.engine import Run, train
from training.runs import make_pictures, metrics, settings, started, weights

SECRET = {"input_size": 32, "preset": "paper-privacy"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pictures(tmp_path_factory.mktemp("pictures"))


def secret(data: Path, folder: Path, **changes: Any) -> TrainConfig:
    return settings(data, folder / "run", **{**SECRET, "secret_key": str(folder / "client.key"), **changes})


def plans_of(run: Run) -> list[Plan]:
    """The plans that a whole run trains with."""
    plans: list[Plan] = []
    run.model.register_forward_pre_hook(lambda _module, inputs: plans.extend(inputs[1:]))
    run.train()
    return plans


def replayed(run: Run, seed: int, step: int) -> Plan:
    """The plan of a step as whoever knows the seed would draw it."""
    generator = torch.Generator().manual_seed(derive_seed(seed, step, PLAN))
    return run.model.sample_plan(torch.zeros(run.step_size, 3, 32, 32), generator)


def same(left: Plan, right: Plan) -> bool:
    return torch.equal(left.permutation, right.permutation) and torch.equal(left.mask, right.mask)


def test_the_seed_replays_an_ordinary_run(data: Path, tmp_path: Path) -> None:
    run = started(settings(data, tmp_path, input_size=32, seed=3))
    assert all(same(plan, replayed(run, 3, step)) for step, plan in enumerate(plans_of(run)))


def test_public_information_replays_no_step_of_a_secret_run(data: Path, tmp_path: Path) -> None:
    """Neither the seed of the run, nor the model's generator, nor that of a run with another key."""
    run = started(secret(data, tmp_path, seed=3))
    plans = plans_of(run)
    assert not any(same(plan, replayed(run, 3, step)) for step, plan in enumerate(plans))
    images = torch.zeros(run.step_size, 3, 32, 32)
    assert not any(same(plan, run.model.sample_plan(images)) for plan in plans)
    other = started(secret(data, tmp_path / "other", seed=3))
    assert not any(same(plan, other.jigsaws.draw(images, step=step)) for step, plan in enumerate(plans))


def test_the_key_is_in_no_file_of_the_run(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(secret(data, tmp_path))
    digits = (tmp_path / "client.key").read_text().strip()
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert len(files) >= 4
    for content in (*(path.read_bytes() for path in files), capsys.readouterr().out.encode()):
        assert digits.encode() not in content
        assert bytes.fromhex(digits) not in content
    states = [load_checkpoint(tmp_path / "run/checkpoints/last.pt")]
    assert digits not in json.dumps(states, default=lambda value: str(getattr(value, "shape", value)))


@pytest.mark.parametrize("changes", [{}, {"sticky": True, "dither": True, "accumulate": 2, "batch_size": 4}])
def test_a_stopped_run_continues_to_the_same_bits(data: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    whole, run = (tmp_path / name for name in ("whole", "run"))
    key = {"secret_key": str(tmp_path / "client.key")}
    train(settings(data, whole, **SECRET, **key, **changes))
    train(settings(data, run, **SECRET, **key, **changes, stop_after=4))
    train(settings(data, run, **SECRET, **key, **changes))
    assert weights(run) == weights(whole)
    assert metrics(run)[-1] == metrics(whole)[-1]


@pytest.mark.parametrize("key", ["another.key", None])
def test_a_run_is_not_continued_with_another_key(data: Path, tmp_path: Path, key: str | None) -> None:
    train(secret(data, tmp_path, stop_after=2))
    path = None if key is None else str(tmp_path / key)
    with pytest.raises(InputError, match="another secret key, or with none"):
        train(secret(data, tmp_path, secret_key=path))


def test_the_key_may_move(data: Path, tmp_path: Path) -> None:
    train(secret(data, tmp_path, stop_after=2))
    (tmp_path / "client.key").rename(tmp_path / "moved.key")
    train(secret(data, tmp_path, secret_key=str(tmp_path / "moved.key")))


def test_a_key_in_the_folder_of_the_run_is_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="keep it elsewhere"):
        started(secret(data, tmp_path, secret_key=str(tmp_path / "run" / "client.key")))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("preset", ["paper-privacy", "private"])
def test_the_preset_has_a_key_without_being_asked(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, preset: str
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    run = started(settings(data, tmp_path / "run", input_size=32, preset=preset))
    assert (tmp_path / "mjp/client.key").stat().st_mode & 0o777 == 0o600
    assert not same(run.jigsaws.draw(torch.zeros(8, 3, 32, 32), step=0), replayed(run, 0, 0))


def test_sticky_jigsaws_stay_with_their_pictures(data: Path, tmp_path: Path) -> None:
    run = started(secret(data, tmp_path, sticky=True, hflip=0.0))
    drawn: dict[bytes, set[bytes]] = {}
    draw = run.jigsaws.draw

    def watch(images: torch.Tensor, digests: torch.Tensor, **place: int) -> Plan:
        plan = draw(images, digests, **place)
        for name, permutation in zip(digests.tolist(), plan.permutation, strict=True):
            drawn.setdefault(bytes(name), set()).add(permutation.numpy().tobytes())
        return plan

    run.jigsaws.draw = watch  # type: ignore[method-assign, assignment]
    run.train()
    assert len(drawn) == 48
    assert all(len(permutations) == 1 for permutations in drawn.values())
    assert len({permutation for permutations in drawn.values() for permutation in permutations}) > 24


@pytest.mark.parametrize("mjp", [{"probability": 0.5}, {"start_epoch": 1}, {"shared": True}, {"shuffle": "none"}])
def test_sticky_jigsaws_need_one_in_every_step(data: Path, tmp_path: Path, mjp: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="--sticky needs a jigsaw"):
        secret(data, tmp_path, sticky=True, mjp=mjp)


@pytest.mark.parametrize("option", ["sticky", "dither"])
def test_what_needs_a_key_has_one(data: Path, tmp_path: Path, option: str) -> None:
    assert settings(data, tmp_path, **{option: True}).secret_key == default_path()


def test_dither_is_less_than_half_a_grey_level_and_the_same_again(data: Path, tmp_path: Path) -> None:
    run = started(secret(data, tmp_path, dither=True))
    images = next(run.batches(0))[0][0]
    noisy = run.jigsaws.dithered(images)
    levels = (noisy - images) * torch.tensor(run.jigsaws.std).view(3, 1, 1) * 255
    assert 0.49 < float(levels.abs().max()) < 0.501
    assert torch.equal(noisy, run.jigsaws.dithered(images))


def test_a_run_from_before_there_were_keys_continues(data: Path, tmp_path: Path) -> None:
    train(settings(data, tmp_path, stop_after=2))
    path = tmp_path / "config.yaml"
    lines = [line for line in path.read_text().splitlines() if not line.startswith(("secret_key", "sticky", "dither"))]
    path.write_text("\n".join(lines))
    train(settings(data, tmp_path))
    with pytest.raises(InputError, match="other settings"):
        train(settings(data, tmp_path, dither=True, secret_key=str(tmp_path.parent / "client.key")))
