"""Training learns, resumes to the same bits, and leaves a frozen teacher alone."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from aladin.tiny import backbone, captioned_pictures, settings
from mjp.aladin.data.corpus import encode_corpus
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.reference import load_reference
from mjp.aladin.model.tokens import Tokens
from mjp.aladin.training import engine as module
from mjp.aladin.training import objective
from mjp.aladin.training.build import learning_rate
from mjp.aladin.training.compared import Sides
from mjp.aladin.training.config import AladinTraining
from mjp.aladin.training.engine import MAX_SCALE, AladinRun, train
from mjp.aladin.training.losses import listnet, triplet
from mjp.aladin.training.objective import alignment_scores
from mjp.common.errors import InputError
from processes import exit_code, start


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return captioned_pictures(tmp_path_factory.mktemp("captioned") / "data")


@pytest.fixture(scope="module")
def prepared(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backbone, its features, and a short alignment run."""
    folder = tmp_path_factory.mktemp("prepared")
    torch.manual_seed(0)
    backbone(folder / "backbone")
    train(settings(data, folder))
    return folder


@pytest.fixture
def home(prepared: Path, tmp_path: Path) -> Path:
    for name in ("backbone", "cache"):
        shutil.copytree(prepared / name, tmp_path / name)
    return tmp_path


@pytest.fixture(autouse=True)
def _no_curves(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run, the prepared one, draws its curve: that takes longer than the training."""
    monkeypatch.setattr(module, "draw_curve", lambda *arguments: None)


def weights(model: Path) -> dict[str, Tensor]:
    return load_file(model / "model.safetensors")


def epochs(run: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == "epoch"]


def test_a_run_leaves_model_curve_and_metrics(prepared: Path) -> None:
    run = prepared / "run"
    assert Aladin.load(run).config.width == 16
    assert (run / "curve.png").stat().st_size > 1000
    assert (run / "model" / "backbone" / "config.json").is_file()
    assert epochs(run)[-1]["align_rsum"] == epochs(run)[-1]["rsum"] > 0


@pytest.mark.parametrize("align_objective", ["triplet", "infonce"])
def test_both_phases_learn(data: Path, home: Path, align_objective: str) -> None:
    """Twelve dev pictures: chance is an rsum of about 270; the colours of both halves are easy to learn."""
    long = {"epochs": 25, "eval_every": 25, "captions": 1, "align_objective": align_objective}
    model = train(settings(data, home, **long))
    assert epochs(home / "run")[-1]["rsum"] > 350
    train(settings(data, home, phase="distill", teacher=model, **long, out=home / "second"))
    second = epochs(home / "second")
    assert second[-1]["rsum"] > 350
    assert second[-1]["teacher_scale"] > 0


@pytest.mark.parametrize("objective", ["distill+infonce", "distill", "infonce", "triplet"])
def test_distillation_changes_the_matching_head_and_not_a_byte_of_the_teacher(
    data: Path, home: Path, prepared: Path, objective: str
) -> None:
    teacher = prepared / "run" / "model"
    student = train(settings(data, home, phase="distill", teacher=teacher, objective=objective))
    before, after = weights(teacher), weights(student)
    assert before.keys() == after.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])} - {"log_scale"}
    assert changed
    assert all(name.startswith("matching.") for name in changed)
    old, new = (Aladin.load(model).encode_texts(["red sky"]) for model in (teacher, student))
    assert torch.equal(old.tokens, new.tokens)
    assert [Aladin.load(model).matching_trained for model in (teacher, student)] == [False, True]
    parts = {name for name in epochs(home / "run")[-1] if name.startswith("train_")} - {"train_loss"}
    assert parts == {f"train_{part}" for part in objective.split("+")}


def test_the_frozen_teacher_has_no_dropout(data: Path, home: Path, prepared: Path) -> None:
    teacher = prepared / "run" / "model"
    run = AladinRun(settings(data, home, phase="distill", teacher=teacher, model={"dropout": 0.5}))
    numbers, captions = [0, 1, 2], [0, 3, 5]
    run.model.train()
    scores = [alignment_scores(run.config, run.model, run.embed(numbers, [0, 0, 0], captions)) for _ in range(2)]
    assert torch.equal(scores[0], scores[1])
    assert not scores[0].requires_grad
    model = Aladin.load(teacher)
    direct = model.alignment(model.codes(run.corpus.tokens(numbers)), model.codes(run.corpus.words(model, captions)))
    torch.testing.assert_close(scores[0], direct, atol=5e-3, rtol=5e-3)  # they were kept in half precision


def test_joint_training_moves_everything(data: Path, home: Path) -> None:
    config = settings(data, home, phase="joint")
    before = {name: value.clone() for name, value in AladinRun(config).model.state_dict().items()}
    after = weights(train(config))
    still = [n for n in before if torch.equal(before[n], after[n]) and n != "log_align_scale"]
    assert still == []
    last = epochs(home / "run")[-1]
    assert {"train_align", "train_distill", "train_infonce", "align_rsum", "match_rsum"} <= set(last)


def test_vectors_of_training_pictures_stay_beside_the_model(data: Path, home: Path, prepared: Path) -> None:
    assert load_reference(prepared / "run" / "model") is None  # vectors are not trained yet
    run = AladinRun(settings(data, home, phase="joint"))
    reference = load_reference(train(run.config))
    model = Aladin.load(home / "run")
    expected = encode_corpus(model, run.corpus)[0].vector
    assert reference is not None
    assert torch.allclose(reference, expected, atol=1e-3)


def test_the_student_does_not_teach_the_alignment_head(data: Path, home: Path) -> None:
    run = AladinRun(settings(data, home, phase="joint", objective="distill"))
    sides = run.embed([0, 1, 2, 3], [0] * 4, [0, 2, 4, 6])
    run._losses(sides, run.corpus.same([0, 1, 2, 3], [0, 2, 4, 6]))["distill"].backward()
    assert run.model.text_align.weight.grad is None
    assert run.model.text_encoder.cls.grad is not None


def step_of(run: AladinRun) -> tuple[Sides, Tensor]:
    """What is compared of four pictures and their captions, without dropout, and which belong together."""
    numbers, captions = [0, 1, 2, 3], [0, 2, 4, 6]
    run.model.eval()
    return run.embed(numbers, [0] * 4, captions), run.corpus.same(numbers, captions)


def test_the_student_learns_scores_at_the_scale_of_the_teacher(data: Path, home: Path, prepared: Path) -> None:
    scales: dict[str, Any] = {"teacher_scale": 3.0, "student_scale": 5.0}
    run = AladinRun(settings(data, home, phase="distill", teacher=prepared / "run", objective="distill", **scales))
    sides, same = step_of(run)
    matched = sides.pictures.vector @ sides.texts.vector.T
    expected = listnet(5 * matched, 3 * alignment_scores(run.config, run.model, sides))
    torch.testing.assert_close(run._losses(sides, same)["distill"], expected)


def test_negatives_become_harder_until_they_are_the_hardest(data: Path, home: Path) -> None:
    run = AladinRun(settings(data, home, hard_warmup=2.0))  # two epochs of three steps
    sides, same = step_of(run)
    scores = alignment_scores(run.config, run.model, sides)
    for run.step, hardness in ((0, 0.0), (3, 0.5), (6, 1.0), (9, 1.0)):
        expected = triplet(scores, same, margin=0.2, hardness=hardness)
        torch.testing.assert_close(run._losses(sides, same)["align"], expected)


@pytest.mark.parametrize(("phase", "scales"), [("joint", [1.5, 2.5]), ("distill", [1.5, 1.5])])
def test_a_teacher_that_learns_is_calibrated_in_every_epoch(
    data: Path, home: Path, prepared: Path, monkeypatch: pytest.MonkeyPatch, phase: str, scales: list[float]
) -> None:
    found = iter([1.5, 2.5])
    monkeypatch.setattr(module, "calibrate", lambda *given: next(found))
    train(settings(data, home, phase=phase, teacher=prepared / "run", eval_every=2))
    assert [epoch["teacher_scale"] for epoch in epochs(home / "run")] == scales


def test_the_average_of_the_weights_is_what_is_saved(data: Path, home: Path) -> None:
    run = AladinRun(settings(data, home, ema=0.5))
    saved = weights(run.train())
    assert run.ema is not None
    assert all(torch.equal(saved[name], value) for name, value in run.ema.module["aladin"].state_dict().items())
    assert not torch.equal(saved["text_align.weight"], run.model.text_align.weight)


def test_every_view_of_a_picture_is_learned_from(data: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, seen = AladinRun(settings(data, home, views=2)), set[int]()
    read = run.corpus.tokens

    def watched(numbers: list[int], views: list[int]) -> Tokens:
        seen.update(views)
        return read(numbers, views)

    monkeypatch.setattr(run.corpus, "tokens", watched)
    run.update(list(range(8)))
    assert seen == {0, 1}


@pytest.mark.parametrize("phase", ["distill", "joint"])
def test_the_scale_of_the_student_is_learned_unless_it_is_not_to_be(
    data: Path, home: Path, prepared: Path, phase: str
) -> None:
    for learned in (True, False):
        changes: dict[str, Any] = {"phase": phase, "teacher": prepared / "run", "out": home / str(learned)}
        run = AladinRun(settings(data, home, student_scale=7.0, learn_scale=learned, **changes))
        assert run.model.log_scale.item() == pytest.approx(math.log(7))
        run.update(list(range(8)))
        assert (run.model.log_scale.item() == pytest.approx(math.log(7), abs=1e-7)) != learned


def test_no_scale_grows_beyond_its_bound(data: Path, home: Path) -> None:
    run = AladinRun(settings(data, home, phase="joint", align_objective="infonce"))
    for scale in (run.model.log_scale, run.model.log_align_scale):
        scale.data.fill_(math.log(MAX_SCALE) + 1)
    run.update(list(range(8)))
    for scale in (run.model.log_scale, run.model.log_align_scale):
        assert scale.item() <= math.log(MAX_SCALE) + 1e-6


def stopped_and_continued(config: AladinTraining, stops: list[int]) -> Path:
    folder = config.folder
    for stop in stops:
        config.stop_after = stop
        train(config)
    config.stop_after = None
    train(config)
    return folder


@pytest.mark.parametrize("phase", ["align", "distill", "joint"])
def test_a_run_in_parts_is_the_run_as_a_whole(data: Path, home: Path, prepared: Path, phase: str) -> None:
    teacher = prepared / "run" / "model"
    common: dict[str, Any] = {"phase": phase, "teacher": teacher, "ema": 0.9}
    whole = train(settings(data, home, **common, out=home / "whole")).parent
    parts = stopped_and_continued(settings(data, home, **common, out=home / "parts"), [1, 4, 5])
    assert (whole / "model" / "model.safetensors").read_bytes() == (parts / "model" / "model.safetensors").read_bytes()
    assert epochs(whole) == epochs(parts)


def dying_task(config: AladinTraining, steps: int) -> None:
    """Train until a step, then die without a word."""
    import os
    import signal

    update = AladinRun.update

    def fragile(self: AladinRun, numbers: list[int], images: Tensor | None = None) -> dict[str, float]:
        if self.step == steps:
            os.kill(os.getpid(), signal.SIGKILL)
        return update(self, numbers, images)

    AladinRun.update = fragile  # type: ignore[method-assign]
    train(config)


@pytest.mark.parametrize("trained", [False, True])
def test_killed_it_continues_to_the_same_bits(data: Path, home: Path, trained: bool) -> None:
    changes: dict[str, Any] = {"phase": "joint", "train_backbone": True, "chunk": 3} if trained else {}
    whole = train(settings(data, home, out=home / "whole", **changes))
    config = settings(data, home, out=home / "killed", checkpoint_minutes=0, **changes)
    assert exit_code(start(dying_task, config, 4)) == -9
    again = train(config)
    assert Aladin.load(whole).hash == Aladin.load(again).hash  # the backbone's weights count
    assert (whole / "model.safetensors").read_bytes() == (again / "model.safetensors").read_bytes()


def test_the_seed_decides(data: Path, home: Path, prepared: Path) -> None:
    again = train(settings(data, home))
    other = train(settings(data, home, seed=1, out=home / "other"))
    first = weights(prepared / "run" / "model")
    assert all(torch.equal(first[n], value) for n, value in weights(again).items())
    assert not torch.equal(first["text_align.weight"], weights(other)["text_align.weight"])


def test_a_picture_is_drawn_with_captions_of_its_own_and_of_no_other(data: Path, home: Path) -> None:
    run = AladinRun(settings(data, home, captions=2))
    captions = run._draw_captions([3, 7], torch.Generator().manual_seed(0))
    assert sorted(captions) == [6, 7, 14, 15]
    assert run.corpus.same([3, 7], [6, 7, 14, 15]).tolist() == [[True, True, False, False], [False, False, True, True]]


def test_other_settings_are_refused(data: Path, home: Path) -> None:
    train(settings(data, home, stop_after=1))
    with pytest.raises(InputError, match=r"other settings \(lr, model\)"):
        train(settings(data, home, lr=1e-4, model={"align_width": 4}))


def test_another_teacher_is_refused(data: Path, home: Path, prepared: Path) -> None:
    shutil.copytree(prepared / "run" / "model", home / "teacher")
    config = settings(data, home, phase="distill", teacher=home / "teacher", stop_after=1)
    train(config)
    other = Aladin.load(home / "teacher")
    with torch.no_grad():
        other.text_align.bias.add_(1)
    other.save(home / "teacher")
    with pytest.raises(InputError, match="another teacher"):
        train(config)


def test_too_few_pictures_and_a_missing_teacher_are_refused(data: Path, home: Path) -> None:
    with pytest.raises(InputError, match="one step takes 25 pictures"):
        train(settings(data, home, batch_size=25))
    with pytest.raises(InputError, match="there is no"):
        train(settings(data, home, phase="distill", teacher=home / "nobody"))
    assert not (home / "run").exists()


def test_a_loss_that_is_no_number_stops_the_run(data: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objective, "triplet", lambda scores, same, **_: scores.sum() * float("nan"))
    with pytest.raises(InputError, match="not finite, in step 1"):
        train(settings(data, home))


def test_the_learning_rate_rises_and_falls(data: Path, tmp_path: Path) -> None:
    config = settings(data, tmp_path, epochs=10, lr=1.0, warmup_epochs=2)
    rates = [learning_rate(config, epoch) for epoch in (0, 1, 2, 6, 10)]
    assert rates == pytest.approx([0.01, 0.505, 1.0, 0.505, 0.01])


def test_a_guide_teaches_the_alignment_head_and_stays_the_same(data: Path, home: Path) -> None:
    guide = train(settings(data, home, out=home / "guide", seed=5, epochs=6))
    weights = (guide / "model.safetensors").read_bytes()
    changes: dict[str, Any] = {"guide": guide, "align_objective": "infonce", "epochs": 4}
    run = AladinRun(settings(data, home, out=home / "guided", **changes))
    run.train()
    lines = [json.loads(line) for line in (home / "guided" / "metrics.jsonl").read_text().splitlines()]
    losses = [line["train_guide"] for line in lines if line["kind"] == "epoch"]
    assert losses[-1] < losses[0]
    assert (guide / "model.safetensors").read_bytes() == weights
    assert run.guide is not None
    assert all(parameter.grad is None for parameter in run.guide.model.parameters())


def test_a_guide_is_asked_about_the_pictures_and_captions_of_the_step(data: Path, home: Path, prepared: Path) -> None:
    run = AladinRun(settings(data, home, out=home / "guided", guide=prepared / "run", teacher_scale=2.0))
    assert run.guide is not None
    numbers, views, captions = [3, 0, 7], [1, 0, 0], [2, 9, 15, 4]
    model = Aladin.load(prepared / "run")
    expected = 2 * model.alignment(
        model.codes(run.corpus.tokens(numbers, views)), model.codes(run.corpus.words(model, captions))
    )
    torch.testing.assert_close(run.guide.scores(numbers, views, captions), expected, atol=1e-2, rtol=1e-2)


def test_a_guide_is_for_the_alignment_phase(data: Path, home: Path) -> None:
    with pytest.raises(InputError, match="--guide teaches the alignment head"):
        settings(data, home, phase="distill", guide=home / "run")


def test_a_coco_file_is_trained_on_with_a_part_held_out(
    data: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = json.loads((data / "captions.json").read_text())
    names = [name for name, entry in facts.items() if entry["split"] == "train"]
    coco = {
        "images": [{"id": number, "file_name": name} for number, name in enumerate(names)],
        "annotations": [
            {"image_id": n, "caption": text} for n, name in enumerate(names) for text in facts[name]["captions"]
        ],
    }
    (home / "captions_train.json").write_text(json.dumps(coco))
    run = AladinRun(settings(home / "captions_train.json", home, pictures=data / "images", epochs=1))
    assert "2 of its 24 training pictures are held out" in capsys.readouterr().out
    used = [{item.path.name for item in corpus.items} for corpus in (run.corpus, run.dev)]
    assert [len(each) for each in used] == [22, 2]
    assert used[0] | used[1] == set(names)
    run.train()
    assert epochs(home / "run")[-1]["rsum"] > 0
    other = AladinRun(settings(home / "captions_train.json", home, pictures=data / "images", seed=7, out=home / "7"))
    assert {item.path.name for item in other.dev.items} == used[1]  # whatever the seed
