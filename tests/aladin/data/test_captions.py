"""Three layouts of captions, one list; what is missing is named."""

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from mjp.aladin.data.captions import all_captions, in_split, load_captions, owners
from mjp.common.errors import InputError


def picture(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 4)).save(path)
    return path


def write(path: Path, facts: Any) -> Path:
    path.write_text(json.dumps(facts))
    return path


def test_a_captions_folder(tmp_path: Path) -> None:
    for name in "ab":
        picture(tmp_path / "images" / f"{name}.jpg")
    entry = {"captions": ["a dog .", "two dogs"], "split": "train"}
    write(tmp_path / "captions.json", {"a.jpg": entry, "b.jpg": {"captions": ["snow"], "split": "test"}})
    found = load_captions(tmp_path)
    assert [(item.path.name, item.captions, item.split) for item in found] == [
        ("a.jpg", ("a dog .", "two dogs"), "train"),
        ("b.jpg", ("snow",), "test"),
    ]
    assert owners(found) == [0, 0, 1]
    assert all_captions(found) == ["a dog .", "two dogs", "snow"]


def test_karpathys_json(tmp_path: Path) -> None:
    picture(tmp_path / "val2014" / "x.jpg")
    picture(tmp_path / "y.jpg")
    images = [
        {"filename": "x.jpg", "filepath": "val2014", "split": "restval", "sentences": [{"raw": "a cat"}]},
        {"filename": "y.jpg", "split": "val", "sentences": [{"raw": "a hat"}, {"raw": "hats"}]},
    ]
    found = load_captions(write(tmp_path / "dataset.json", {"images": images, "dataset": "coco"}))
    assert [(item.path.name, item.split, len(item.captions)) for item in found] == [
        ("x.jpg", "train", 1),
        ("y.jpg", "dev", 2),
    ]


def test_cocos_json(tmp_path: Path) -> None:
    picture(tmp_path / "pictures" / "1.jpg")
    facts = {
        "images": [{"id": 7, "file_name": "1.jpg"}],
        "annotations": [{"image_id": 7, "caption": "one"}, {"image_id": 7, "caption": "two"}],
    }
    file = write(tmp_path / "captions_val2017.json", facts)
    (found,) = load_captions(file, tmp_path / "pictures")
    assert (found.captions, found.split) == (("one", "two"), "dev")


def test_captions_of_missing_pictures_are_named(tmp_path: Path) -> None:
    write(tmp_path / "captions.json", {"gone.jpg": {"captions": ["a dog"]}})
    with pytest.raises(InputError, match=r"1 pictures .* gone\.jpg"):
        load_captions(tmp_path)


def test_captions_without_words_are_left_out(tmp_path: Path) -> None:
    picture(tmp_path / "a.jpg")
    file = write(tmp_path / "captions.json", {"a.jpg": {"captions": [" ", "...", " a dog "]}})
    assert load_captions(file)[0].captions == ("a dog",)
    write(tmp_path / "captions.json", {"a.jpg": {"captions": ["!"]}})
    with pytest.raises(InputError, match="no picture with a caption"):
        load_captions(file)


LONG = "x" * 100_000


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", "3", '{"a.jpg": []}', '{"images": [{}], "annotations": []}', "[" * 99_999, LONG, f'["{LONG}"]'),
        *(f'{{"{LONG}": 7}}', f'{{"{LONG}": {{"captions": "{LONG}"}}}}', f'{{"{LONG}": {{"captions": ["a dog"]}}}}'),
        *(f'{{"images": [{{"{LONG}": 1}}], "annotations": [{{"image_id": "{LONG}"}}]}}', '{"a": ' + "9" * 9999 + "}"),
        *(
            '{"images": [{"id": [], "file_name": 3}], "annotations": [{"image_id": [], "caption": 3}]}',
            '{"a\\u0000b": 1}',
        ),
        '{"a\\u0000b": {"captions": ["a dog"]}}',
    ],
)
def test_a_file_of_another_kind_is_refused_and_not_printed(tmp_path: Path, content: str) -> None:
    (tmp_path / "captions.json").write_text(content)
    with pytest.raises(InputError, match=r"captions\.json") as refusal:
        load_captions(tmp_path)
    assert len(str(refusal.value)) < 400 + 2 * len(str(tmp_path))


@pytest.mark.parametrize(
    "entry",
    [
        *({"captions": captions} for captions in ([None], [3], [["x"]], "a dog", None, {"a": 1})),
        *({"captions": ["a dog"], "split": split} for split in (["train"], 3, None)),
    ],
)
def test_captions_are_lists_of_texts(tmp_path: Path, entry: Any) -> None:
    picture(tmp_path / "a.jpg")
    with pytest.raises(InputError, match=r"captions\.json: 'a\.jpg' needs a list of texts"):
        load_captions(write(tmp_path / "captions.json", {"a.jpg": entry}))


def test_a_file_that_is_not_text_is_refused_and_not_printed(tmp_path: Path) -> None:
    (tmp_path / "captions.json").write_bytes(bytes(range(256)) * 1000)
    with pytest.raises(InputError, match=r"captions\.json is not UTF-8 text") as refusal:
        load_captions(tmp_path)
    assert len(str(refusal.value)) < 100 + len(str(tmp_path))


def test_an_empty_folder_and_an_unknown_split_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no"):
        load_captions(tmp_path)
    picture(tmp_path / "a.jpg")
    write(tmp_path / "captions.json", {"a.jpg": {"captions": ["a dog"], "split": "train"}})
    with pytest.raises(InputError, match="no split 'test': it has train"):
        in_split(load_captions(tmp_path), "test")
