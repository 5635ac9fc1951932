"""An explanation is the score taken apart, and what is drawn is where it says."""

import shutil
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw, ImageFont

import mjp.aladin.search.explain as module
from aladin.gallery import take_in
from mjp.aladin.index.store import Index
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.shipped import find_aladin
from mjp.aladin.search.draw import box, draw_frames, draw_heat
from mjp.aladin.search.explain import Stored, Word, explain, has_peak, pieces_of_words, unread_words
from mjp.aladin.search.two_stage import alignment_scores
from mjp.aladin.search.windows import spread, windows
from mjp.pictures.sheet import fit_text


def stored_picture(index: Index, row: int) -> Stored:
    config = index.config
    return Stored(index.codes(torch.tensor([row])), index.entries([row])[0].paths, config.mask_ratio > 0, config.grid)


TEXT = "Red sky, xylophone ground 日本!"


def test_the_words_add_up_to_the_alignment_score(model: Aladin, indexed: Path) -> None:
    index, query = Index(indexed), model.encode_texts([TEXT])
    for row in range(3):
        words = explain(stored_picture(index, row), model, TEXT, query)
        assert [word.text for word in words] == ["red", "sky", "xylophone", "ground", "日本"]
        total = float(alignment_scores(index, model, query, torch.tensor([row]))[0])
        assert sum(word.score for word in words) == pytest.approx(total, abs=1e-5)
        for word in words:
            assert word.heat.shape == (16,)
            assert float(word.heat[word.patch]) == float(word.heat.max())


def test_a_window_alone_knows_nothing_of_the_rest(model: Aladin) -> None:
    tokens = model.vision.tokens(torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0)))
    changed = tokens.patches.clone()
    changed[:, 5] = changed[:, 5].flip(-1)  # second row and column of 4×4: inside all four windows of 3×3
    changed_corner = tokens.patches.clone()
    changed_corner[:, 15] = changed_corner[:, 15].flip(-1)
    parts = [windows(tokens._replace(patches=patches), (4, 4)) for patches in (tokens.patches, changed, changed_corner)]
    before, middle, corner = (model.codes(part).tokens for part in parts)
    assert len(before) == 4
    assert ((before - middle).abs().amax((1, 2)) > 1e-6).tolist() == [True] * 4
    assert ((before - corner).abs().amax((1, 2)) > 1e-6).tolist() == [False, False, False, True]


def test_a_place_gets_the_mean_of_the_windows_around_it() -> None:
    scores = torch.rand(2, 12, generator=torch.Generator().manual_seed(0))  # 3×4 windows on 5×6 places
    places = spread(scores, (5, 6))
    for row in range(5):
        for column in range(6):
            around = [
                scores[:, 4 * y + x] for y in range(3) for x in range(4) if 0 <= row - y < 3 and 0 <= column - x < 3
            ]
            torch.testing.assert_close(places[:, row, column], torch.stack(around).mean(0))


def test_only_networks_that_take_any_size_see_more_pixels(model: Aladin) -> None:
    assert model.vision.enlarged(2).size == model.vision.size  # a ViT
    shipped = find_aladin("aladin-flickr8k").vision
    large = shipped.enlarged(2)
    assert large.size == (448, 448)
    assert large.tokens(torch.zeros(1, 3, 448, 448)).patches.shape[1] == 196


def test_without_the_file_the_map_is_of_the_stored_tokens(model: Aladin, gallery: Path, tmp_path: Path) -> None:
    pictures = shutil.copytree(gallery, tmp_path / "pictures")
    index, _ = take_in(pictures, tmp_path / "index", model)
    query = model.encode_texts([TEXT])
    with_file = explain(stored_picture(index, 0), model, TEXT, query)
    shutil.rmtree(pictures)
    without = explain(stored_picture(index, 0), model, TEXT, query)
    assert [word.score for word in with_file] == [word.score for word in without]
    assert not torch.equal(with_file[0].heat, without[0].heat)
    names = dict(pieces_of_words(model, TEXT))
    stored = index.codes(torch.tensor([0])).tokens[0]
    expected = (stored @ query.tokens[0, names["red"]].T).amax(1)
    torch.testing.assert_close(without[0].heat, expected, atol=2e-3, rtol=0)  # stored in half precision


def test_every_piece_belongs_to_one_word(model: Aladin) -> None:
    groups = list(pieces_of_words(model, TEXT))
    assert [n for _, pieces in groups for n in pieces] == list(range(len(model.piece_names(TEXT))))
    assert dict(groups)["日本"]  # characters that training never saw
    long = " ".join(["sky"] * 500)
    assert sum(len(pieces) for _, pieces in pieces_of_words(model, long)) == len(model.piece_names(long)) < 500


def test_words_beyond_the_longest_query_are_counted(model: Aladin) -> None:
    assert unread_words(model, TEXT) == 0
    assert unread_words(model, " ".join(["sky"] * 70)) == 70 - 64 // len(model.piece_names("sky"))


def test_hidden_patches_are_said_to_be_hidden(model: Aladin, gallery: Path, tmp_path: Path) -> None:
    index, _ = take_in(gallery, tmp_path / "index", model, mask_ratio=1.0)
    words = explain(stored_picture(index, 0), model, TEXT, model.encode_texts([TEXT]))
    assert all(word.hidden for word in words)
    picture = Image.new("RGB", (40, 40), "white")
    assert draw_frames(picture, words, (4, 4)).tobytes() == picture.tobytes()
    hidden = index.codes(torch.tensor([0])).unknown[0]
    heat = np.array(draw_heat(picture, words[0], (4, 4), hidden))
    assert heat.max() == heat.min()  # no patch can be told from another


def test_a_long_label_ends_at_the_edge_of_the_picture() -> None:
    font = ImageFont.load_default(13)
    shown = fit_text("a man rides a bicycle along the river", font, 100)
    assert shown.startswith("a man")
    assert shown.endswith("…")
    assert 80 < font.getlength(shown) <= 100
    assert fit_text("a man", font, 100) == "a man"


def test_patches_are_counted_row_by_row() -> None:
    assert box(0, (2, 4), (40, 20)) == (0, 0, 10, 10)
    assert box(3, (2, 4), (40, 20)) == (30, 0, 40, 10)
    assert box(4, (2, 4), (40, 20)) == (0, 10, 10, 20)


def test_a_frame_is_around_the_chosen_patch_and_light_falls_on_it() -> None:
    heat = torch.zeros(16)
    heat[10] = 1
    word, grey = Word("dog", 1.0, heat, 10, False), Image.new("RGB", (200, 200), "#808080")
    drawn = np.array(draw_frames(grey, [word], (4, 4)))
    assert tuple(drawn[101, 125]) != (128, 128, 128)  # the frame of row 2, column 2
    assert tuple(drawn[125, 125]) == (128, 128, 128)  # the patch itself stays to be seen
    assert tuple(drawn[25, 25]) == (128, 128, 128)
    light = np.array(draw_heat(grey, word, (4, 4), torch.zeros(16, dtype=torch.bool)))
    assert light[125, 125].mean() > 3 * light[25, 25].mean()


def test_no_label_covers_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words that choose neighbouring patches, in one row, in one column, and at the edges."""
    drawn: list[tuple[float, float, float, float]] = []
    rectangle = ImageDraw.ImageDraw.rectangle

    def noted(self: Any, xy: Any, **settings: Any) -> None:
        if "fill" in settings:
            drawn.append(xy)
        rectangle(self, xy, **settings)

    monkeypatch.setattr(ImageDraw.ImageDraw, "rectangle", noted)
    names = ["standing", "mountaineer", "photographer", "snow", "a", "with", "helicopter", "rescue"]
    for patches in ([0, 1, 2, 7, 8, 14, 48, 42], [20, 21, 22, 13, 6, 27, 34, 41]):
        words = [Word(name, 1.0, torch.zeros(49), patch, False) for name, patch in zip(names, patches, strict=True)]
        drawn.clear()
        draw_frames(Image.new("RGB", (280, 210)), words, (7, 7))
        assert len(drawn) == 8
        for (a, b, c, d), (e, f, g, h) in combinations(drawn, 2):
            assert c < e or g < a or d < f or h < b
        assert all(left >= 0 and top >= 0 and right <= 280 and bottom <= 210 for left, top, right, bottom in drawn)


def test_only_a_word_whose_map_has_a_peak_gets_a_frame() -> None:
    flat, peaked = torch.full((16,), 0.3), torch.full((16,), 0.3)
    peaked[5] = 0.9
    peaked[0] = -torch.inf  # padding
    assert has_peak(peaked)
    assert not has_peak(flat + 0.01 * torch.arange(16))
    picture = Image.new("RGB", (160, 160))
    words = [Word("dog", 0.9, peaked, 5, False), Word("the", 0.1, flat, 2, False, peaked=False)]
    assert draw_frames(picture, words, (4, 4)).tobytes() == draw_frames(picture, words[:1], (4, 4)).tobytes()


def test_a_map_without_a_peak_shows_neither_a_frame_nor_strong_light() -> None:
    heat = torch.full((16,), 0.3)
    heat[10] = 0.35
    word, grey = Word("dog", 1.0, heat, 10, False, peaked=False), Image.new("RGB", (200, 200), "#808080")
    light = np.array(draw_heat(grey, word, (4, 4), torch.zeros(16, dtype=torch.bool))).astype(float)
    assert (light[:, :, 0] == light[:, :, 2]).all()  # the frame would be orange
    assert light[25, 25].mean() > 0.7 * light[125, 125].mean()


def test_words_that_name_nothing_point_nowhere(model: Aladin, indexed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "has_peak", lambda heat: True)
    stored = stored_picture(Index(indexed), 0)
    words = explain(stored, model, "The sky on a hill", model.encode_texts(["The sky on a hill"]))
    assert [word.text for word in words if word.place is not None] == ["sky", "hill"]


def test_a_word_that_hardly_counts_points_nowhere(model: Aladin, indexed: Path) -> None:
    index, query = Index(indexed), model.encode_texts(["red sky"])
    weighted = query._replace(tokens=query.tokens * torch.tensor([0.95, 0.05]).view(1, 2, 1))
    assert len(model.piece_names("red sky")) == 2
    assert not explain(stored_picture(index, 0), model, "red sky", weighted)[1].peaked
