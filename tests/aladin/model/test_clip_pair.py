"""A pretrained pair behind the same index and search: its vectors are open_clip's own, tested with random weights."""

from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch
from torch.nn.functional import normalize

from aladin.gallery import make_gallery
from aladin.tiny import captioned_pictures, settings
from mjp.aladin import index_pictures, open_index
from mjp.aladin.evaluate.config import EvalConfig
from mjp.aladin.evaluate.run import evaluate_models
from mjp.aladin.model import clip_pair
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.clip_pair import Pair, make_pair, same_width
from mjp.aladin.model.config import AladinConfig
from mjp.aladin.model.shipped import find_aladin
from mjp.aladin.training.engine import AladinRun, train
from mjp.common.errors import InputError
from mjp.common.fingerprint import fingerprint
from mjp.common.results import read_results
from mjp.pictures.decode import open_rgb
from mjp.report.page import write_page

NAME = "open_clip:tiny/random"
VISION: Any = {"layers": 1, "width": 24, "head_width": 12, "patch_size": 8, "image_size": 32}
TEXT: Any = {"context_length": 20, "vocab_size": 49408, "width": 12, "heads": 2, "layers": 1}


@pytest.fixture(scope="module")
def pair() -> Pair:
    torch.manual_seed(0)
    return make_pair(open_clip.CLIP(16, VISION, TEXT), open_clip.SimpleTokenizer(context_length=20))


@pytest.fixture(autouse=True)
def offline(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    for room in ("backbones", "text_encoders"):
        monkeypatch.setattr(f"mjp.aladin.model.{room}.open_clip.load_pair", lambda variant: pair)


def test_vectors_are_the_embeddings_of_open_clip(pair: Pair, tmp_path: Path) -> None:
    model = find_aladin(NAME)
    path = next(make_gallery(tmp_path, 1).rglob("*.png"))
    image = model.vision.prepare(open_rgb(path)).unsqueeze(0)
    texts = ["a red sky", "dog"]
    with torch.no_grad():
        picture = normalize(pair.model.encode_image(image), dim=-1)
        words = normalize(pair.model.encode_text(pair.tokenizer(texts)), dim=-1)
    torch.testing.assert_close(model.encode_pictures(image).vector, picture)
    codes = model.encode_texts(texts)
    torch.testing.assert_close(codes.vector, words)
    assert model.code_widths[0] == codes.vector.shape[1] == 16
    assert codes.valid.sum(1).tolist() == [3, 1]  # neither start nor end nor padding
    assert model.piece_names("a red sky") == ["a</w>", "red</w>", "sky</w>"]
    assert find_aladin(NAME).hash == model.hash


def test_index_and_search_as_with_any_model(tmp_path: Path) -> None:
    pictures = make_gallery(tmp_path / "pictures", 5)
    index_pictures(pictures, tmp_path / "index", model=NAME, workers=0, device="cpu")
    search = open_index(tmp_path / "index")
    matches = search.search("a red sky", k=5)
    model = search.model
    images = torch.stack([model.vision.prepare(open_rgb(match.paths[0])) for match in matches])
    cosines = model.encode_pictures(images).vector @ model.encode_texts(["a red sky"]).vector[0]
    assert [match.cosine for match in matches] == pytest.approx(cosines.tolist(), abs=1e-5)
    assert cosines.tolist() == sorted(cosines.tolist(), reverse=True)
    assert all(match.alignment is None for match in matches)  # nobody has trained it
    assert search.search(like=matches[2].id, k=1)[0].id == matches[2].id
    with pytest.raises(InputError, match="not trained to align"):
        search.explain("sky", matches[0].id)


def test_the_alignment_is_trained_on_top(tmp_path: Path) -> None:
    data = captioned_pictures(tmp_path / "data")
    shape = {"backbone": NAME, "text": "open_clip"}
    folder = train(settings(data, tmp_path, phase="align", epochs=1, model=shape))
    model = Aladin.load(folder)
    assert model.matching_trained
    untrained = find_aladin(NAME)
    texts = ["red sky"]
    torch.testing.assert_close(model.encode_texts(texts).vector, untrained.encode_texts(texts).vector)
    index_pictures(data / "images", tmp_path / "index", model=folder, workers=0, device="cpu")
    matches = open_index(tmp_path / "index").search("red sky", k=4)
    assert [match.alignment for match in matches] == sorted((m.alignment or 0 for m in matches), reverse=True)
    assert not (folder / "backbone").exists()  # it stays where open_clip has it
    with pytest.raises(InputError, match="has its own vectors"):
        settings(data, tmp_path, phase="distill", model=shape)


def test_the_image_tower_is_trained_beside_the_published_pair(pair: Pair, tmp_path: Path) -> None:
    data = captioned_pictures(tmp_path / "data")
    shape = {"backbone": NAME, "text": "open_clip"}
    before = fingerprint(pair.model.state_dict())
    config = settings(data, tmp_path, phase="joint", epochs=1, train_backbone=True, chunk=3, model=shape)
    run = AladinRun(config)
    folder = run.train()
    assert fingerprint(pair.model.state_dict()) == before  # others who loaded it have it as it was
    model = Aladin.load(folder)
    assert model.backbone_trained
    assert (folder / "backbone.safetensors").is_file()
    assert fingerprint(model.vision.model.state_dict()) == fingerprint(run.model.vision.model.state_dict())
    image, texts = torch.rand(1, 3, 32, 32), ["red sky"]
    untrained = find_aladin(NAME)
    assert torch.equal(model.encode_texts(texts).vector, untrained.encode_texts(texts).vector)  # its tower is frozen
    assert not torch.allclose(model.encode_pictures(image).vector, untrained.encode_pictures(image).vector)
    index_pictures(data / "images", tmp_path / "index", model=folder, workers=0, device="cpu")
    matches = open_index(tmp_path / "index").search("red sky", k=4)
    assert all(match.alignment is not None for match in matches)
    (folder / "backbone.safetensors").unlink()
    with pytest.raises(InputError, match=r"backbone\.safetensors"):
        _ = Aladin.load(folder).vision


def test_eval_leaves_out_an_alignment_that_nobody_trained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = captioned_pictures(tmp_path / "data")
    common: Any = {"data": data, "out": tmp_path / "eval", "cache": tmp_path / "cache", "workers": 0, "fold": 6}
    evaluate_models(EvalConfig(models=(NAME,), device="cpu", latency=(), **common))
    model = read_results(tmp_path / "eval").body["models"][NAME]
    assert set(model["scorers"]) == set(model["ndcg25"]) == {"vector"}
    assert model["scorers"]["vector"]["retention_percent"] is None
    assert model["backbone_trained"] is False
    printed = capsys.readouterr().out
    assert "alignment and two stages are left out" in printed
    assert f"{NAME}: backbone {NAME}, frozen" in printed
    write_page(tmp_path / "report.html", [tmp_path / "eval"], title="")  # can be reported on


def test_training_the_tower_without_its_vectors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--train-backbone both with --phase joint"):
        settings(tmp_path, tmp_path, train_backbone=True, model={"backbone": NAME, "text": "open_clip"})


def test_what_is_wrong_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="is not complete"):
        clip_pair.load_pair("ViT-B-32")
    with pytest.raises(InputError, match="has no model ViT-B-33"):
        clip_pair.load_pair("ViT-B-33/openai")
    with pytest.raises(InputError, match="has no weights nowhere of ViT-B-32: choose from openai"):
        clip_pair.load_pair("ViT-B-32/nowhere")

    def unreachable(*_: object, **__: object) -> None:
        raise OSError("Network is unreachable")

    monkeypatch.setattr(open_clip, "create_model", unreachable)
    with pytest.raises(InputError, match=r"connect to the network once.*Network is unreachable"):
        clip_pair.load_pair("ViT-B-32/openai")
    monkeypatch.setitem(__import__("sys").modules, "open_clip", None)
    with pytest.raises(InputError, match=r"mjp\[clip\]"):
        clip_pair.load_pair("ViT-B-32/openai")


def test_other_classes_and_other_backbones_are_refused() -> None:
    with pytest.raises(InputError, match="choose a ViT of class CLIP"):
        make_pair(torch.nn.Linear(2, 2), None)
    from mjp.aladin.model.text_encoders import text_encoder_module

    with pytest.raises(InputError, match=r"use --model\.backbone open_clip"):
        text_encoder_module("open_clip").create(AladinConfig(text="open_clip"), [])


def test_zeros_change_neither_lengths_nor_products() -> None:
    a, b = torch.rand(2, 3), torch.rand(2, 5, 4)
    wide, same = same_width(a, b)
    assert wide.shape == (2, 4)
    assert torch.equal(same, b)
    torch.testing.assert_close(wide @ wide.T, a @ a.T)
