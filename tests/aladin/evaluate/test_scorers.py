"""Scorers of a model on a split, and the commands that train and measure it."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from aladin.tiny import backbone, captioned_pictures, noise, settings
from mjp.aladin.data.captions import Captioned, in_split, load_captions
from mjp.aladin.data.corpus import Corpus
from mjp.aladin.evaluate.metrics import ranks
from mjp.aladin.evaluate.relevance import Judgement
from mjp.aladin.evaluate.scorers import (
    ALIGNMENT,
    TWO_STAGE,
    VECTOR,
    choose_k,
    graded,
    measure,
    score_matrices,
    two_stage_ranks,
)
from mjp.aladin.evaluate.seeds import over_seeds
from mjp.aladin.evaluate.tables import scorer_table, seed_table
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.training.config import config_from, parse_arguments
from mjp.aladin.training.engine import train
from mjp.cli.main import main
from mjp.common.errors import InputError
from mjp.common.runs.recipe import load_recipe

OWNER = torch.arange(20).repeat_interleave(5)
SCORES = {ALIGNMENT: noise(20, 100) + 2 * (torch.arange(20).unsqueeze(1) == OWNER), VECTOR: noise(20, 100, seed=1)}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    captioned_pictures(folder / "data")
    backbone(folder / "backbone")
    train(settings(folder / "data", folder, phase="joint"))
    return folder


def test_reranking_the_whole_gallery_is_exhaustive_alignment() -> None:
    both, alone = two_stage_ranks(SCORES[VECTOR], SCORES[ALIGNMENT], OWNER, 100), ranks(SCORES[ALIGNMENT], OWNER)
    assert torch.equal(both.i2t, alone.i2t)
    assert torch.equal(both.t2i, alone.t2i)


def test_the_k_with_the_best_rsum_is_chosen_and_of_equals_the_smallest() -> None:
    assert choose_k(SCORES, OWNER, (1, 5, 100)) == 100
    assert choose_k({ALIGNMENT: SCORES[ALIGNMENT], VECTOR: SCORES[ALIGNMENT]}, OWNER, (50, 5, 20)) == 5


def test_two_stages_have_folds_and_ndcg_of_their_own() -> None:
    items = [
        Captioned(Path(f"{n}.png"), tuple(f"word{n} and thing{n % 7} {k}" for k in range(5)), "") for n in range(20)
    ]
    said = {"crowd": [Judgement("3.png", f"{n}.png", 0, n / 20) for n in range(20)]}
    corpus: Any = SimpleNamespace(owner=OWNER, items=items)
    whole = measure(SCORES, corpus, 50, seed=0, fold=10)  # as many as a gallery of ten pictures has captions
    assert whole[TWO_STAGE]["folds"] == whole[ALIGNMENT]["folds"]
    few = measure(SCORES, corpus, 5, seed=0, fold=10)
    assert few[TWO_STAGE]["folds"]["rsum"] != few[ALIGNMENT]["folds"]["rsum"]
    judged = graded(SCORES, corpus, 100, said)
    assert judged[TWO_STAGE] == judged[ALIGNMENT] != judged[VECTOR]
    assert graded(SCORES, corpus, 5, said)[TWO_STAGE] not in (judged[ALIGNMENT], judged[VECTOR])


def test_what_is_measured() -> None:
    corpus: Any = SimpleNamespace(owner=OWNER)
    found = measure(SCORES, corpus, 5, seed=0, fold=10)
    assert set(found) == {ALIGNMENT, VECTOR, TWO_STAGE}
    assert found[ALIGNMENT]["retention_percent"] == 100.0
    assert found[VECTOR]["retention_percent"] == pytest.approx(100 * found[VECTOR]["rsum"] / found[ALIGNMENT]["rsum"])
    assert found[VECTOR]["folds"]["rsum"] > found[VECTOR]["rsum"]  # smaller galleries are easier
    assert found[TWO_STAGE]["k"] == 5
    assert found[ALIGNMENT]["difference"] == {"mean": 0.0, "low": 0.0, "high": 0.0}
    json.dumps(found, allow_nan=False)


def test_a_model_that_finds_nothing_retains_no_share_of_it() -> None:
    """Equal scores count against the scorer: all of them equal, and nothing is found."""
    corpus: Any = SimpleNamespace(owner=OWNER, items=[])
    collapsed = {ALIGNMENT: torch.zeros(20, 100), VECTOR: SCORES[VECTOR]}
    found = measure(collapsed, corpus, 5, seed=0, fold=None)
    assert found[ALIGNMENT]["rsum"] == 0
    assert {each["retention_percent"] for each in found.values()} == {None}
    assert {each["retention_t2i_percent"] for each in found.values()} == {None}
    facts = {"pictures": 20, "captions": 100, "scorers": found, "ndcg25": {ALIGNMENT: {}}}
    assert scorer_table("m", "test", facts).splitlines()[3].endswith(" –")
    seeds = [{**facts, "training": {"phase": "joint", "objective": "", "seed": n, "family": ""}} for n in range(2)]
    assert seed_table(over_seeds({str(n): each for n, each in enumerate(seeds)})[0]).splitlines()[3].endswith(" –")


def test_folds_are_shown() -> None:
    corpus: Any = SimpleNamespace(owner=OWNER)
    found = measure(SCORES, corpus, 5, seed=0, fold=10)
    facts = {"pictures": 20, "captions": 100, "scorers": found, "ndcg25": {ALIGNMENT: {}}}
    lines = scorer_table("m", "test", facts).splitlines()
    below = lines[lines.index("mean over galleries of 10 pictures") + 1 :]
    for line, name in zip(below, found, strict=False):
        assert line.split()[0] == name
        assert line.split()[-1] == f"{found[name]['folds']['rsum']:.1f}"
    assert "mean over" not in scorer_table(
        "m", "test", facts | {"scorers": measure(SCORES, corpus, 5, seed=0, fold=None)}
    )


def test_every_picture_and_caption_is_encoded_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Aladin.load(home / "run")
    items = in_split(load_captions(home / "data"), "test")
    corpus = Corpus(model, items, home / "cache", workers=0, max_unreadable=0)
    seen: dict[str, int] = {"pictures": 0, "texts": 0}
    tokens, words = Aladin.encode_tokens, Aladin.encode_words

    def count(side: str, method: Any) -> Any:
        def counted(self: Aladin, given: Any) -> Any:
            seen[side] += len(given.valid)
            return method(self, given)

        return counted

    monkeypatch.setattr(Aladin, "encode_tokens", count("pictures", tokens))
    monkeypatch.setattr(Aladin, "encode_words", count("texts", words))
    scores = score_matrices(model, corpus)
    assert seen == {"pictures": 12, "texts": 24}
    assert scores[ALIGNMENT].shape == scores[VECTOR].shape == (12, 24)


def test_the_command_writes_what_it_prints(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "data" / "crowd.txt").write_text("test00.png\ttest00.png#0\t1\t3\t0\ntest00.png\ttest01.png#0\t0\t0\t3\n")
    arguments = ["aladin", "eval", str(home / "run"), "--data", str(home / "data"), "--out", str(home / "eval")]
    arguments += ["--cache", str(home / "cache"), "--workers", "0"]
    assert main([*arguments, "--rerank", "2", "5", "--latency", "20"]) == 0
    facts = json.loads((home / "eval" / "results.json").read_text())
    assert facts["kind"] == "aladin eval"
    timed = facts["latency"][str(home / "run")]
    assert timed["sizes"][0]["pictures"] == 20
    assert (home / "eval" / "latency.png").is_file()
    facts = facts["models"][str(home / "run")]
    assert timed["rerank"] == facts["scorers"][TWO_STAGE]["k"]
    assert (facts["pictures"], facts["captions"]) == (12, 24)
    assert facts["hash"] == Aladin.load(home / "run").hash
    said = capsys.readouterr().out
    assert timed["headline"][0] in said
    for name, each in facts["scorers"].items():
        assert name in said
        assert f"{each['rsum']:.1f}" in said
    assert facts["scorers"][TWO_STAGE]["k"] in (2, 5)
    assert facts["ndcg25"][ALIGNMENT]["crowd"]["i2t_queries"] == 1


def test_a_model_whose_vectors_are_not_trained_has_alignment_alone(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    aligned, index = str(train(settings(home / "data", home, out=home / "aligned", epochs=1))), home / "index"
    arguments = ["aladin", "eval", aligned, "--data", str(home / "data"), "--out", str(home / "alone")]
    arguments += ["--cache", str(home / "cache"), "--workers", "0", "--latency", "20", "--fold", "6"]
    assert main(arguments) == 0
    facts = json.loads((home / "alone" / "results.json").read_text())
    assert set(facts["models"][aligned]["scorers"]) == set(facts["models"][aligned]["ndcg25"]) == {ALIGNMENT}
    assert "latency" not in facts
    assert "no vector, no two stages" in capsys.readouterr().out
    refused = (
        ["index", str(home / "data"), "-o", str(index), "--model", aligned],
        [*arguments[1:], "--mask-ratios", "1"],
    )
    for each in refused:
        assert main(["aladin", *each]) == 2
        assert f"run mjp aladin train --phase distill --teacher {aligned}" in capsys.readouterr().err
    assert not index.exists()


def test_a_split_without_judgements_is_evaluated_without_them(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "data" / "crowd.txt").write_text("test00.png\ttest00.png#0\t1\t3\t0\n")
    arguments = ["aladin", "eval", str(home / "run"), "--data", str(home / "data"), "--out", str(home / "eval")]
    arguments += ["--cache", str(home / "cache"), "--workers", "0", "--rerank", "5", "--latency"]
    assert main([*arguments, "--split", "dev"]) == 0
    assert "–/–" in capsys.readouterr().out
    (home / "data" / "crowd.txt").write_text("nonsense\n")
    assert main([*arguments, "--cache", str(home / "unused")]) == 2
    assert "crowd.txt, line 1" in capsys.readouterr().err
    assert not (home / "unused").exists()
    (home / "data" / "crowd.txt").unlink()


def test_training_by_command(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = home / "recipe.yaml"
    recipe.write_text(settings(home / "data", home, out=home / "by-command").to_yaml())
    assert main(["aladin", "train", "--recipe", str(recipe), "--epochs", "1"]) == 0
    assert str(home / "by-command" / "model") in capsys.readouterr().out
    assert Aladin.load(home / "by-command").hash


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["eval", "nowhere", "--data", "."], "there is no nowhere/config.json"),
        (["eval", "nowhere", "--data", ".", "--rerank", "0"], "at least 1"),
        (["eval", "nowhere", "--data", ".", "--choose-on", "test"], "on another split"),
        (["eval", "--data", "."], "at least one model"),
        (["eval", "nowhere", "--data", ".", "--latency", "0"], "--latency must be a whole number of at least 1"),
        (["eval", "nowhere", "--data", ".", "--mask-ratios", "1.5"], "between 0 and 1"),
        (["eval", "nowhere", "--data", ".", "--mask-ratios", "0"], "a ratio above 0"),
        (["eval", "nowhere", "--data", ".", "--mask-ratios", "1", "--draws", "0"], "at least 1"),
        *((["eval", "nowhere", "--data", ".", "--fold", n], "--fold must be a whole number") for n in ("0", "-1")),
        *((["eval", "nowhere", "--data", ".", "--limit", n], "--limit must be a whole number") for n in ("0", "-2")),
        (["eval", "nowhere", "--data", ".", "--workers", "-1"], "--workers must be a whole number"),
        (["index", "nowhere", "-o", "index", "--workers", "-1"], "--workers must be a whole number"),
        (["train", "--data", "nowhere"], "there is no nowhere"),
        (["train", "--recipe", "nowhere"], "there is no recipe"),
        (["train", "--recipe", "quickstart"], "there is no recipe"),
        (["serch"], "unknown command 'serch': choose one of train"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["aladin", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.startswith("mjp aladin")
    assert message in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [("workers", -1), ("limit", 0), ("limit", -2), ("student_scale", 0.0), ("teacher_scale", -3.0), ("stop_after", 0)],
)
def test_numbers_of_a_run_that_cannot_be(name: str, value: float, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"--{name.replace('_', '-')} must be a"):
        settings(tmp_path, tmp_path, **{name: value})


def test_help_is_quick_and_names_the_commands() -> None:
    code = """
import sys
from mjp.cli.main import main
main(["aladin"])
try:
    main(["aladin", "train", "--help"])
except SystemExit:
    sys.exit(9 if "torch" in sys.modules else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert all(word in done.stdout for word in ("train", "eval", "--phase", "--model.width"))


@pytest.mark.parametrize("phase", ["align", "distill", "joint"])
def test_the_recipe_knows_every_phase(phase: str) -> None:
    config = parse_arguments(["--phase", phase], "")
    own = load_recipe("aladin_flickr8k", "aladin")["phases"][phase]
    assert (config.phase, config.epochs, config.model.backbone) == (phase, own["epochs"], "lite0")
    assert parse_arguments(["--phase", phase, "--epochs", "3"], "").epochs == 3


ALIGN, DISTILL, JOINT = (f"--phase {phase} " for phase in ("align", "distill", "joint"))


@pytest.mark.parametrize(
    ("arguments", "unread"),
    [
        (DISTILL + "--model.width 64 --model.text minilm", "--model.text, --model.width"),
        (DISTILL + "--align-objective infonce --margin 7", "--align-objective, --margin"),
        (DISTILL + "--objective infonce --teacher-scale 3", "--teacher-scale"),
        (DISTILL + "--objective triplet --student-scale 9 --no-learn-scale", "--student-scale, --learn-scale"),
        (ALIGN + "--objective triplet --teacher nowhere", "--teacher, --objective"),
        (ALIGN + "--teacher-scale 3 --student-scale 9 --margin 7", "--margin, --student-scale, --teacher-scale"),
        (JOINT + "--teacher nowhere --hard-warmup 3", "--teacher, --hard-warmup"),
    ],
)
def test_an_option_that_changes_nothing_is_refused(arguments: str, unread: str) -> None:
    with pytest.raises(InputError, match=f"does not read {unread}: omit it"):
        parse_arguments(arguments.split(), "")


@pytest.mark.parametrize(
    "arguments",
    [
        DISTILL + "--teacher somewhere --objective triplet --margin 7 --hard-warmup 3 --model.match-layers 1",
        DISTILL + "--teacher-scale 3 --student-scale 9 --no-learn-scale --model.dropout 0.2 --model.no-match-shared",
        ALIGN + "--align-objective triplet --margin 7 --hard-warmup 3 --model.width 64 --model.text minilm",
        ALIGN + "--guide somewhere --teacher-scale 3",
        JOINT + "--objective triplet --margin 7 --model.width 64 --align-objective infonce",
        JOINT + "--teacher-scale 3 --student-scale 9",
    ],
)
def test_an_option_that_is_read_is_taken(arguments: str) -> None:
    assert parse_arguments(arguments.split(), "").phase == arguments.split()[1]


def test_a_recipe_may_say_what_one_of_its_phases_does_not_read(home: Path) -> None:
    """As the configuration of a run does, which holds every field."""
    recipe = home / "all.yaml"
    recipe.write_text(settings(home / "data", home, margin=7.0, student_scale=9.0, teacher=home / "run").to_yaml())
    for phase in ("align", "distill", "joint"):
        config = parse_arguments(["--recipe", str(recipe), "--phase", phase], "")
        assert (config.margin, config.student_scale) == (7.0, 9.0)


@pytest.mark.parametrize("values", [{"epoch": 3}, {"model": {"wide": 3}}, {"batch_size": 1}, {"ema": 1}, {"lr": -1.0}])
def test_a_misspelt_or_impossible_field_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        config_from(values)
