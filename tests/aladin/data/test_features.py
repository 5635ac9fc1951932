"""Tokens on disk survive a kill, are computed once, and name the pictures that cannot be read."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

from aladin.tiny import backbone, captioned_pictures, noise
from mjp.aladin.data.captions import Captioned, in_split, load_captions
from mjp.aladin.data.features import PictureFeatures, text_features
from mjp.aladin.data.token_file import TokenFile, fill, token_file
from mjp.aladin.model.backbones import find_backbone
from mjp.aladin.model.text import Words
from mjp.aladin.model.tokens import Tokens
from mjp.aladin.model.vision import Vision, crop
from mjp.common.errors import InputError
from mjp.common.fingerprint import fingerprint
from mjp.pictures.decode import open_rgb

ROWS = [noise(length, 3, seed=length).half().float() for length in (4, 2, 5, 3)]


def file_of(folder: Path) -> TokenFile:
    return token_file(folder, {"kind": "test"}, 3)


def test_rows_come_back_in_any_order(tmp_path: Path) -> None:
    file = file_of(tmp_path)
    file.append(ROWS[:2])
    file.append(ROWS[2:])
    cls, tokens, valid = file.read([2, 1])
    assert torch.equal(cls, torch.stack([ROWS[2][0], ROWS[1][0]]))
    assert torch.equal(tokens[0], ROWS[2][1:])
    assert torch.equal(tokens[1, :1], ROWS[1][1:])
    assert valid.tolist() == [[True] * 4, [True, False, False, False]]


@pytest.mark.parametrize("lost", [1, 5, 6, 7, 30, 31, 59])
def test_whatever_a_kill_leaves_the_work_goes_on_behind_the_last_whole_row(tmp_path: Path, lost: int) -> None:
    file = file_of(tmp_path)
    file.append(ROWS)
    os.truncate(file.tokens, file.tokens.stat().st_size - lost)
    again = file_of(tmp_path)
    with again.filling():
        assert len(again) < 4
    fill(again, 4, lambda start, stop: ROWS[start:stop], 2, "rows")
    assert torch.equal(again.read([3])[1][0], ROWS[3][1:])
    assert again.tokens.stat().st_size == 2 * 3 * sum(map(len, ROWS))


def test_tokens_written_without_their_lengths_are_written_again(tmp_path: Path) -> None:
    file = file_of(tmp_path)
    file.append(ROWS[:2])
    with open(file.tokens, "ab") as handle:
        handle.write(b"half a row")
    again = file_of(tmp_path)
    with again.filling():
        again.append(ROWS[2:])
    assert torch.equal(again.read([3])[1][0], ROWS[3][1:])


OTHER = """
import sys, time
from pathlib import Path
import torch
from mjp.aladin.data.features import fill, token_file

def slowly(start, stop):
    print(start, flush=True)
    time.sleep(0.1)
    return [torch.full((2, 3), float(n)) for n in range(start, stop)]

fill(token_file(Path(sys.argv[1]), {"kind": "test"}, 3), 10, slowly, 2, "rows")
"""


def test_of_two_processes_one_fills_and_the_other_waits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine: list[int] = []

    def rows(start: int, stop: int) -> list[Tensor]:
        mine.extend(range(start, stop))
        return [torch.full((2, 3), float(n)) for n in range(start, stop)]

    with subprocess.Popen([sys.executable, "-c", OTHER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "0\n"  # it has begun
        file = file_of(tmp_path)
        fill(file, 12, rows, 2, "rows")
    assert mine == [10, 11]
    assert file.read(range(12))[0][:, 0].tolist() == list(range(12))
    assert "another process is filling" in capsys.readouterr().out


def test_rows_are_read_while_another_process_appends(tmp_path: Path) -> None:
    file = file_of(tmp_path)
    file.append(ROWS)
    with open(file.tokens, "ab") as handle:
        handle.write(b"half a row")
    assert torch.equal(file_of(tmp_path).read([3])[1][0], ROWS[3][1:])
    assert file.tokens.stat().st_size == 2 * 3 * sum(map(len, ROWS)) + 10


def test_another_key_is_another_folder(tmp_path: Path) -> None:
    first, second = token_file(tmp_path, {"kind": "a", "x": 1}, 3), token_file(tmp_path, {"kind": "a", "x": 2}, 3)
    assert first.folder != second.folder


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    captioned_pictures(folder / "data", train=5, others=2)
    backbone(folder / "backbone")
    return folder


@pytest.fixture(scope="module")
def vision(home: Path) -> Vision:
    return find_backbone(str(home / "backbone"))


def train_items(home: Path) -> list[Captioned]:
    return in_split(load_captions(home / "data"), "train")


def features(cache: Path, items: list[Captioned], vision: Vision, **changes: Any) -> PictureFeatures:
    return PictureFeatures(cache, items, vision, **{"views": 1, "workers": 0, "max_unreadable": 0, **changes})


def test_features_are_those_of_the_backbone(home: Path, vision: Vision, tmp_path: Path) -> None:
    items = train_items(home)
    found = features(tmp_path, items, vision, views=2)
    plain, mirrored = (found.read([found.place(3, view)]) for view in (0, 1))
    image = vision.prepare(open_rgb(items[3].path)).unsqueeze(0)
    torch.testing.assert_close(plain.patches, vision.tokens(image).patches, atol=2e-3, rtol=2e-3)
    torch.testing.assert_close(plain.cls, vision.tokens(image).cls, atol=2e-3, rtol=2e-3)
    torch.testing.assert_close(mirrored.patches, vision.tokens(image.flip(-1)).patches, atol=2e-3, rtol=2e-3)


def test_each_picture_is_encoded_once(home: Path, vision: Vision, tmp_path: Path, monkeypatch: Any) -> None:
    seen: list[int] = []
    tokens = Vision.tokens

    def counted(self: Vision, images: Tensor) -> Tokens:
        seen.append(len(images))
        return tokens(self, images)

    monkeypatch.setattr(Vision, "tokens", counted)
    for views in (1, 1, 2, 1):  # the mirror images lengthen the file; who wants fewer views reads its beginning
        found = features(tmp_path, train_items(home), vision, views=views)
        assert [item.path for item in found.items] == [item.path for item in train_items(home)]
    assert sum(seen) - 4 == 10  # four single ones ask for the width


def test_a_run_killed_between_batches_goes_on(home: Path, vision: Vision, tmp_path: Path) -> None:
    items = train_items(home)
    whole = features(tmp_path / "a", items, vision)
    part = features(tmp_path / "b", items, vision)
    os.truncate(part.file.lengths, 4 * 2)
    again = features(tmp_path / "b", items, vision)
    assert again.file.tokens.read_bytes() == whole.file.tokens.read_bytes()


@pytest.fixture
def broken(home: Path) -> Iterator[Path]:
    """A picture that cannot be read, for a moment."""
    path = home / "data" / "images" / "train02.png"
    content = path.read_bytes()
    path.write_bytes(b"")
    yield path
    path.write_bytes(content)


def test_unreadable_pictures_are_named(home: Path, vision: Vision, tmp_path: Path, broken: Path) -> None:
    for _ in range(2):  # also when the features are there already
        with pytest.raises(InputError, match=r"1 unreadable pictures.*train02\.png"):
            features(tmp_path, train_items(home), vision)


def test_unreadable_pictures_are_left_out_on_demand(
    home: Path, vision: Vision, tmp_path: Path, broken: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = features(tmp_path, train_items(home), vision, max_unreadable=1)
    assert [item.path.name for item in found.items] == ["train00.png", "train01.png", "train03.png", "train04.png"]
    image = vision.prepare(open_rgb(found.items[2].path)).unsqueeze(0)
    stored = found.read([found.place(2)])
    torch.testing.assert_close(stored.cls, vision.tokens(image).cls, atol=2e-3, rtol=2e-3)
    assert "unreadable" in capsys.readouterr().out


def test_a_changed_picture_is_computed_anew(home: Path, vision: Vision, tmp_path: Path) -> None:
    before = features(tmp_path, train_items(home), vision).file.folder
    path = home / "data" / "images" / "train01.png"
    Image.new("RGB", (32, 32)).save(path)
    assert features(tmp_path, train_items(home), vision).file.folder != before


def test_texts_are_kept_without_padding(tmp_path: Path) -> None:
    class Letters:
        width = 3
        weights = "x"

        def __call__(self, texts: list[str]) -> Words:
            lengths = torch.tensor([len(text) for text in texts])
            values = noise(len(texts), int(lengths.max()), 3)
            return Words(values[:, 0], values, torch.arange(values.shape[1]) < lengths.unsqueeze(1))

        def pieces(self, text: str) -> list[str]:
            return list(text)

    file = text_features(tmp_path, ["ab", "abcd"], Letters())
    assert file.tokens.stat().st_size == 2 * 3 * (1 + 2 + 1 + 4)
    assert file.read([0, 1])[2].sum(1).tolist() == [2, 4]


def test_views_show_the_picture_its_mirror_image_and_parts_of_it() -> None:
    assert crop((40, 20), 0, seed=3) == ((0, 0, 40, 20), False)
    assert crop((40, 20), 1, seed=3) == ((0, 0, 40, 20), True)
    for seed in range(20):
        (left, top, right, bottom), _ = crop((40, 20), 2, seed)
        assert 0 <= left < right <= 40
        assert 0 <= top < bottom <= 20
        assert 0.6 <= (right - left) * (bottom - top) / 800 <= 1
    assert crop((40, 20), 2, 1) == crop((40, 20), 2, 1) != crop((40, 20), 3, 1)


def test_a_fingerprint_sees_every_value_and_name() -> None:
    base: dict[str, Tensor] = {"a": torch.zeros(2), "b": torch.ones(())}
    assert fingerprint(base) == fingerprint(dict(reversed(base.items())))
    changed = [{**base, "a": torch.tensor([0.0, 1e-7])}, {"a": base["a"], "c": base["b"]}]
    assert len({fingerprint(base), fingerprint(base, "x"), *(fingerprint(other) for other in changed)}) == 4


def test_the_wrong_size_is_refused(home: Path) -> None:
    with pytest.raises(InputError, match="leave the image size unset"):
        find_backbone(str(home / "backbone"), 64)
