"""The loop learns, resumes to the same bits, stops at the first bad step and never loses what it had."""

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from PIL import Image
from torch import Tensor, nn

import mjp
from mjp.common.errors import InputError
from mjp.common.runs.checkpoint import load_checkpoint
from mjp.training.arguments import parse_arguments
from mjp.training.config import TrainConfig
from mjp.training.data import Augmented
from mjp.training.engine import Run, train
from mjp.training.evaluate import evaluate
from training.runs import RANDOM, metrics, settings, started, tensors, weights


def finished(config: TrainConfig) -> Path:
    """Train and give the folder of the run."""
    train(config)
    return config.folder


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run with every random part on."""
    return finished(settings(data, tmp_path_factory.mktemp("whole") / "run", **RANDOM))


def test_a_run_learns(data: Path, tmp_path: Path) -> None:
    run = finished(settings(data, tmp_path, epochs=6, lr=0.3, warmup_epochs=0.5))
    assert [line["val_top1"] for line in metrics(run) if line["kind"] == "epoch"][-1] == 100


def test_the_folder_holds_what_a_person_wants(whole: Path) -> None:
    assert {path.name for path in whole.iterdir()} == {
        "config.yaml",
        "metrics.jsonl",
        "checkpoints",
        "curve.png",
        "model",
    }
    assert {path.name for path in (whole / "checkpoints").iterdir()} == {"last.pt", "previous.pt"}
    with Image.open(whole / "curve.png") as curve:
        assert curve.format == "PNG"


def test_metrics_have_a_line_per_step_and_per_epoch(whole: Path) -> None:
    lines = metrics(whole)
    assert [line["step"] for line in lines if line["kind"] == "step"] == list(range(1, 13))
    assert [(line["epoch"], line["step"]) for line in lines if line["kind"] == "epoch"] == [(1, 6), (2, 12)]
    assert {"train_loss", "train_dal", "gradient_norm", "lr", "val_top1", "val_top5", "val_loss", "unreadable"} <= set(
        lines[-1]
    )


def test_the_learning_rate_rises_in_the_warm_up_and_falls_to_the_end(whole: Path) -> None:
    rates = [line["lr"] for line in metrics(whole) if line["kind"] == "step"]
    assert rates[:6] == sorted(rates[:6])
    assert rates[6:] == sorted(rates[6:], reverse=True)
    assert rates[-1] < max(rates) / 4


def test_the_trained_model_is_a_model_of_the_library(whole: Path) -> None:
    model = mjp.MJP.from_pretrained(whole / "model")
    assert model.eval()(torch.zeros(1, 3, 16, 16)).shape == (1, 2)


def test_the_config_file_reproduces_the_run(whole: Path, tmp_path: Path) -> None:
    arguments = ["--recipe", str(whole / "config.yaml"), "--out", str(tmp_path / "again")]
    again = finished(parse_arguments(arguments, description=""))
    assert weights(again) == weights(whole)
    assert metrics(again) == metrics(whole)


def test_another_seed_gives_another_run(whole: Path, data: Path, tmp_path: Path) -> None:
    assert weights(finished(settings(data, tmp_path, seed=1, **RANDOM))) != weights(whole)


@pytest.mark.parametrize("stop", [1, 5, 6, 7, 12])
def test_a_run_stopped_anywhere_continues_to_the_same_bits(whole: Path, data: Path, tmp_path: Path, stop: int) -> None:
    stopped = started(settings(data, tmp_path, stop_after=stop, **RANDOM))
    stopped.train()
    assert load_checkpoint(tmp_path / "checkpoints" / "last.pt")["step"] == stopped.step == stop
    torch.rand(3)
    finished(settings(data, tmp_path, **RANDOM))
    assert weights(tmp_path) == weights(whole)
    assert metrics(tmp_path) == metrics(whole)


def test_a_checkpoint_continues_in_another_folder(whole: Path, data: Path, tmp_path: Path) -> None:
    train(settings(data, tmp_path / "first", stop_after=4, **RANDOM))
    resume = tmp_path / "first" / "checkpoints" / "last.pt"
    second = finished(settings(data, tmp_path / "second", resume=str(resume), **RANDOM))
    assert weights(second) == weights(whole)
    assert metrics(second) == [line for line in metrics(whole) if line["step"] > 4]


def test_the_previous_checkpoint_continues_to_the_same_bits(whole: Path, data: Path, tmp_path: Path) -> None:
    train(settings(data, tmp_path, stop_after=4, checkpoint_minutes=0, **RANDOM))
    checkpoints = tmp_path / "checkpoints"
    (checkpoints / "last.pt").write_bytes(b"damaged")
    with pytest.raises(InputError, match=f"--resume {checkpoints / 'previous.pt'}"):
        train(settings(data, tmp_path, **RANDOM))
    finished(settings(data, tmp_path, resume=str(checkpoints / "previous.pt"), **RANDOM))
    assert weights(tmp_path) == weights(whole)
    assert metrics(tmp_path) == metrics(whole)


def test_workers_change_nothing(whole: Path, data: Path, tmp_path: Path) -> None:
    assert weights(finished(settings(data, tmp_path, workers=2, **RANDOM))) == weights(whole)


def test_evaluating_and_logging_change_nothing(whole: Path, data: Path, tmp_path: Path) -> None:
    run = finished(settings(data, tmp_path, eval_every=2, log_every=100, checkpoint_minutes=0, **RANDOM))
    assert weights(run) == weights(whole)
    first, last = (line for line in metrics(run) if line["kind"] == "epoch")
    assert first["val_top1"] is None
    assert last["val_top1"] is not None


def test_a_checkpoint_follows_the_evaluation_of_its_epoch(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    save, write = Run.save, Run.write

    def watched_save(run: Run, **options: Any) -> Path:
        happened.append(f"save {run.step}")
        return save(run, **options)

    def watched_write(run: Run, kind: str, **values: Any) -> None:
        happened.append(f"{kind} {run.step}")
        write(run, kind, **values)

    monkeypatch.setattr(Run, "save", watched_save)
    monkeypatch.setattr(Run, "write", watched_write)
    train(settings(data, tmp_path, epochs=1, batch_size=24, checkpoint_minutes=0))
    assert happened == ["step 1", "save 1", "step 2", "epoch 2", "save 2"]


def test_a_finished_run_is_not_trained_again(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = finished(settings(data, tmp_path))
    before, seen = weights(run), metrics(run)
    monkeypatch.setattr(Run, "update", lambda *_: pytest.fail("a step was made"))
    finished(settings(data, tmp_path))
    assert (weights(run), metrics(run)) == (before, seen)


def test_a_run_that_lost_its_model_folder_writes_it_again(data: Path, tmp_path: Path) -> None:
    before = weights(finished(settings(data, tmp_path)))
    shutil.rmtree(tmp_path / "model")
    assert weights(finished(settings(data, tmp_path))) == before


def test_a_folder_is_not_continued_with_other_settings(data: Path, tmp_path: Path) -> None:
    train(settings(data, tmp_path, stop_after=2))
    before = (tmp_path / "config.yaml").read_bytes()
    with pytest.raises(InputError, match=r"other settings \(lr, mjp\)"):
        train(settings(data, tmp_path, lr=0.01, mjp={"ratio": 0.25}))
    assert (tmp_path / "config.yaml").read_bytes() == before
    assert load_checkpoint(tmp_path / "checkpoints" / "last.pt")["step"] == 2


def test_a_checkpoint_of_another_number_of_processes_is_refused(data: Path, tmp_path: Path) -> None:
    train(settings(data, tmp_path, stop_after=2))
    state = load_checkpoint(tmp_path / "checkpoints" / "last.pt")
    torch.save({**state, "world": 8}, tmp_path / "eight.pt")
    with pytest.raises(InputError, match="from a run of 8 processes, this is 1"):
        train(settings(data, tmp_path / "other", resume=str(tmp_path / "eight.pt")))


@pytest.mark.parametrize("changes", [{"model_kwargs": ["patch_size=8", "embed_dim=48"]}, {"model_ema": True}])
def test_a_checkpoint_of_another_model_is_refused_by_name(data: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    train(settings(data, tmp_path, stop_after=1))
    last = tmp_path / "checkpoints" / "last.pt"
    with pytest.raises(InputError, match=f"{last} belongs to another model"):
        train(settings(data, tmp_path / "other", resume=str(last), **changes))


def test_more_pictures_per_step_than_there_are_is_bad_input(data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"one step takes 64 pictures, .* has 48"):
        started(settings(data, tmp_path, batch_size=32, accumulate=2))


class BadAfter(nn.Module):
    """Cross entropy that becomes infinite or not a number after some calls."""

    def __init__(self, calls: int, value: float) -> None:
        super().__init__()
        self.calls, self.value = calls, value

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        self.calls -= 1
        loss = nn.functional.cross_entropy(logits, labels)
        return loss if self.calls >= 0 else loss * self.value


@pytest.mark.parametrize("amp", ["none", "bf16", "fp16"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_stops_the_run_at_the_last_good_step(
    data: Path, tmp_path: Path, amp: str, value: float
) -> None:
    good = started(settings(data, tmp_path / "good", amp=amp, stop_after=4))
    run = started(settings(data, tmp_path / "bad", amp=amp))
    criterion: Any = BadAfter(8, value)  # four steps of each run
    good.criterion = run.criterion = criterion
    good.train()
    with pytest.raises(InputError, match=r"loss became (nan|inf).* in step 5\. .*last\.pt: rerun .* a lower --lr"):
        run.train()
    kept, wanted = (load_checkpoint(tmp_path / name / "checkpoints" / "last.pt") for name in ("bad", "good"))
    assert kept["step"] == 4
    assert all(torch.equal(kept["model"][name], wanted["model"][name]) for name in wanted["model"])


def test_a_learning_rate_that_is_far_too_high_is_reported(data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="The last good step is saved"):
        train(settings(data, tmp_path, lr=1e30, warmup_epochs=0, clip_grad=None, opt="sgd"))
    state = load_checkpoint(tmp_path / "checkpoints" / "last.pt")["model"]
    assert all(value.isfinite().all() for value in state.values())


@pytest.mark.parametrize("advice", [{"lr": 0.003}, {"warmup_epochs": 2}, {"clip_grad": 0.1}])
def test_after_a_bad_step_the_advised_settings_continue_the_run(
    data: Path, tmp_path: Path, advice: dict[str, Any]
) -> None:
    run = started(settings(data, tmp_path, clip_grad=5.0))
    run.criterion = BadAfter(4, float("nan"))  # type: ignore[assignment]
    with pytest.raises(InputError, match="in step 5"):
        run.train()
    with pytest.raises(InputError, match=r"other settings \(batch_size"):
        train(settings(data, tmp_path, batch_size=4, **advice))
    train(settings(data, tmp_path, **advice))
    assert metrics(tmp_path)[-1]["epoch"] == 2
    ((name, value),) = advice.items()
    (change,) = [line for line in metrics(tmp_path) if line["kind"] == "settings"]
    assert (change["step"], change[name][1]) == (4, value)
    with pytest.raises(InputError, match=r"other settings \(lr\)"):  # from here on it is an ordinary run again
        train(settings(data, tmp_path, **{**advice, "lr": 0.5}))


def test_a_lower_rate_after_a_bad_step_is_the_rate_of_the_following_steps(data: Path, tmp_path: Path) -> None:
    run = started(settings(data, tmp_path, lr=0.03))
    run.criterion = BadAfter(4, float("nan"))  # type: ignore[assignment]
    with pytest.raises(InputError, match="lower --lr"):
        run.train()
    train(settings(data, tmp_path, lr=0.003))
    rates = {line["step"]: line["lr"] for line in metrics(tmp_path) if line["kind"] == "step"}
    slow = finished(settings(data, tmp_path / "slow", lr=0.003))
    expected = {line["step"]: line["lr"] for line in metrics(slow) if line["kind"] == "step" and line["step"] > 4}
    assert {step: rate for step, rate in rates.items() if step > 4} == expected


def test_a_folder_that_another_run_trains_in_is_refused(data: Path, tmp_path: Path) -> None:
    run = started(settings(data, tmp_path))
    with run.opened(), pytest.raises(InputError, match="another process is training in"):
        train(settings(data, tmp_path))
    train(settings(data, tmp_path))


def test_another_number_of_threads_is_recorded_and_announced(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(settings(data, tmp_path, stop_after=1))
    threads = torch.get_num_threads()
    last = tmp_path / "checkpoints" / "last.pt"
    assert load_checkpoint(last)["threads"] == threads
    train(settings(data, tmp_path, stop_after=2))
    assert "this process has" not in capsys.readouterr().out
    torch.save({**load_checkpoint(last), "threads": threads + 3}, last)
    train(settings(data, tmp_path, stop_after=3))
    assert f"used {threads + 3} threads, this process has {threads}" in capsys.readouterr().out


def test_a_full_disk_stops_the_run_and_keeps_the_last_checkpoint(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(settings(data, tmp_path, stop_after=3))

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", full)
        with pytest.raises(InputError, match=r"No space left on device.*\); the last one is intact"):
            train(settings(data, tmp_path))
    assert load_checkpoint(tmp_path / "checkpoints" / "last.pt")["step"] == 3
    resumed = weights(finished(settings(data, tmp_path)))
    assert resumed == weights(finished(settings(data, tmp_path / "whole")))


def test_accumulating_is_a_larger_batch(data: Path, tmp_path: Path) -> None:
    plain = {"smoothing": 0.1, "epochs": 1, "opt": "sgd"}
    large = tensors(finished(settings(data, tmp_path / "large", batch_size=16, **plain)))
    small = tensors(finished(settings(data, tmp_path / "small", batch_size=4, accumulate=4, **plain)))
    assert all(torch.allclose(small[name], large[name], rtol=1e-4, atol=1e-6) for name in large)


def test_gradients_are_clipped_and_their_norm_is_logged_unclipped(data: Path, tmp_path: Path) -> None:
    run = started(settings(data, tmp_path, clip_grad=1e-3, stop_after=1))
    run.train()
    norm = torch.cat([p.grad.flatten() for p in run.model.parameters() if p.grad is not None]).norm()
    assert float(norm) == pytest.approx(1e-3, rel=1e-2)
    assert metrics(tmp_path)[0]["gradient_norm"] > 1e-2


def test_the_average_of_the_weights_follows_them_and_is_what_is_saved(data: Path, tmp_path: Path) -> None:
    run = started(settings(data, tmp_path, model_ema=True, model_ema_decay=0.9))
    run.train()
    assert run.ema is not None
    saved, own, average = tensors(tmp_path), run.model.state_dict(), run.ema.module.state_dict()
    assert all(torch.equal(saved[name], average[name]) for name in saved)
    assert not torch.equal(saved["model.head.weight"], own["model.head.weight"])


def test_half_precision_trains_weights_in_full_precision(data: Path, tmp_path: Path) -> None:
    run = started(settings(data, tmp_path, amp="bf16", epochs=6, lr=0.3, warmup_epochs=0.5))
    seen: list[torch.dtype] = []
    head: Any = run.model.model.head
    head.register_forward_hook(lambda _module, _inputs, out: seen.append(out.dtype))
    run.train()
    assert seen[0] == torch.bfloat16
    assert all(p.dtype == torch.float32 for p in run.model.parameters())
    assert run.log.read("epoch")[-1]["val_top1"] > 90


def test_channels_last_changes_the_layout_and_not_the_result(data: Path, tmp_path: Path) -> None:
    resnet = {
        "model": "test_resnet",
        "preset": "E",
        "model_kwargs": [],
        "input_size": 32,
        "batch_size": 24,
        "epochs": 1,
        "opt": "sgd",
    }
    run = started(settings(data, tmp_path / "last", channels_last=True, **resnet))
    seen: list[bool] = []
    run.model.register_forward_pre_hook(
        lambda _module, inputs: seen.append(inputs[0].is_contiguous(memory_format=torch.channels_last))
    )
    run.update(run.network(), next(run.batches(0)))
    assert seen == [True]
    filters = [p for p in run.model.parameters() if p.ndim == 4 and min(p.shape[1:]) > 1]
    assert all(p.is_contiguous(memory_format=torch.channels_last) for p in filters)
    other = started(settings(data, tmp_path / "first", **resnet))
    other.update(other.network(), next(other.batches(0)))
    for ours, theirs in zip(run.model.parameters(), other.model.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)


def test_tensorboard_files_are_written_when_asked_for(data: Path, tmp_path: Path) -> None:
    run = started(settings(data, tmp_path, stop_after=1, tensorboard=True))
    run.train()
    assert run.log.board is not None
    run.log.board.close()
    assert list((tmp_path / "tensorboard").glob("events.*"))


def test_the_config_file_holds_every_field(whole: Path) -> None:
    assert yaml.safe_load((whole / "config.yaml").read_text()).keys() == TrainConfig.__dataclass_fields__.keys()


def test_the_jigsaw_starts_when_it_is_told_to(data: Path, tmp_path: Path) -> None:
    run = started(settings(data, tmp_path, mjp={"start_epoch": 1}))
    budgets: list[int] = []
    run.model.register_forward_pre_hook(lambda _module, inputs: budgets.extend(plan.budget for plan in inputs[1:]))
    run.train()
    assert budgets == [0] * 6 + [2] * 6


def test_a_run_that_ends_before_its_jigsaw_starts_is_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"starts after 20 epochs, and the run has 8: .* --mjp\.start-epoch 2"):
        train(settings(data, tmp_path / "run", preset="reference", epochs=8))
    assert not (tmp_path / "run").exists()
    train(settings(data, tmp_path, preset="plain", mjp={"start_epoch": 9}))  # which has none


def test_the_loss_is_smoothed_cross_entropy_and_weighted_localization(data: Path, tmp_path: Path) -> None:
    run = started(settings(data, tmp_path, smoothing=0.3, mjp={"localize_weight": 0.5}))
    network, micro_batches = run.network(), next(run.batches(0))
    images, labels, _ = micro_batches[0]
    out = network(images, run.jigsaws.draw(images, step=0))
    expected = nn.functional.cross_entropy(out.logits, labels, label_smoothing=0.3) + 0.5 * out.dal
    assert out.dal > 0.1
    losses = run.update(network, micro_batches)
    assert losses["train_loss"] == pytest.approx(float(expected.detach()), rel=1e-5)
    assert losses["train_top1"] == pytest.approx(100 * (out.logits.argmax(1) == labels).float().mean().item())


def test_what_is_saved_is_what_was_evaluated_without_a_jigsaw(whole: Path, data: Path, tmp_path: Path) -> None:
    run = started(settings(data, tmp_path, **RANDOM))
    pictures = Augmented(run.val_pictures, run.val_transform, training=False)
    model = mjp.MJP.from_pretrained(whole / "model").eval()
    result = evaluate(model, pictures, run.config, run.world, run.unreadable)
    last = metrics(whole)[-1]
    assert result == {name: last[name] for name in result}


def test_every_step_has_its_own_jigsaw_and_every_forward_pass_its_own_noise(data: Path, tmp_path: Path) -> None:
    run = started(settings(data, tmp_path, input_size=32, batch_size=4, accumulate=2, **RANDOM))
    plans: list[bytes] = []
    noise: list[bytes] = []
    run.model.register_forward_pre_hook(lambda _module, inputs: plans.append(inputs[1].permutation.numpy().tobytes()))
    run.model.register_forward_pre_hook(lambda *_: noise.append(torch.random.get_rng_state().numpy().tobytes()))
    run.train()
    assert len(plans) == len(set(plans)) == 24
    assert len(set(noise)) == 24


def test_a_model_whose_arguments_leave_no_trace_is_saved_and_loaded(data: Path, tmp_path: Path) -> None:
    kwargs = ["channels=(8,16,24,32)", "stem_width=8", "output_stride=8"]
    config = settings(data, tmp_path / "run", model="resnet10t", model_kwargs=kwargs, preset="E", epochs=1)
    model = mjp.MJP.from_pretrained(train(config))
    assert model.unwrap().num_features == 32
