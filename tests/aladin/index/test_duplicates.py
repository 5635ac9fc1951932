"""Near-duplicates: copies in another size are grouped with their original, and nothing else is."""

import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image

from aladin.gallery import make_gallery, take_in
from aladin.index.test_store import CONFIG, filled, random_codes
from mjp.aladin.index import duplicates
from mjp.aladin.index.catalogue import File
from mjp.aladin.index.duplicates import duplicate_groups
from mjp.aladin.index.store import Index, open_or_create
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.codes import Codes
from mjp.common.errors import InputError


def test_copies_are_grouped_with_their_original(model: Aladin, tmp_path: Path) -> None:
    home = make_gallery(tmp_path / "pictures", 6)
    with Image.open(home / "a" / "01.png") as picture:
        picture.resize((96, 80), Image.Resampling.NEAREST).save(home / "larger.png")
        picture.save(home / "again.jpg", quality=95)
    shutil.copy(home / "b" / "02.png", home / "same.png")
    index, _ = take_in(home, tmp_path / "index", model)
    groups = duplicate_groups(index, 0.9998)
    paths = [{path.name for entry in group.pictures for path in entry.paths} for group in groups]
    assert {"02.png", "same.png"} in paths
    assert any({"01.png", "larger.png"} <= group for group in paths)
    assert all(group <= {"01.png", "larger.png", "again.jpg", "02.png", "same.png"} for group in paths)
    assert groups == sorted(groups, key=lambda group: -group.similarity)


def test_similar_vectors_alone_are_not_enough(tmp_path: Path) -> None:
    index = open_or_create(tmp_path, CONFIG)
    codes = random_codes(3)
    vector = torch.nn.functional.normalize(codes.vector[:1], dim=-1).repeat(3, 1)
    tokens = torch.nn.functional.normalize(codes.tokens, dim=-1)
    tokens[2] = tokens[0]
    names = ["p0", "p1", "p2"]
    files = [File(Path("/", name), name, None, 1, 1) for name in names]
    index.add(names, Codes(vector, tokens, codes.valid, codes.unknown), files)
    (group,) = duplicate_groups(index, 0.99)
    assert [entry.id for entry in group.pictures] == ["p0", "p2"]


def test_blocks_do_not_matter_and_chains_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = filled(tmp_path, 5, 4)
    whole = duplicate_groups(index, 0.2)
    monkeypatch.setattr(duplicates, "BLOCK", 16)
    assert duplicate_groups(index, 0.2) == whole
    ids = [entry.id for group in whole for entry in group.pictures]
    assert len(ids) == len(set(ids))


def test_an_empty_index_and_bad_thresholds(tmp_path: Path) -> None:
    index = filled(tmp_path, 1)
    index.delete(ids=["p0"])
    assert duplicate_groups(Index(tmp_path), 0.9) == []
    for threshold in (-0.1, 1.5, float("nan")):
        with pytest.raises(InputError, match="--threshold"):
            duplicate_groups(index, threshold)


def test_what_the_class_channel_says_does_not_count(tmp_path: Path) -> None:
    codes = random_codes(2)
    vector, tokens = codes.vector.clone(), codes.tokens.clone()
    vector[1, :5], tokens[1, :, :2] = vector[0, :5], tokens[0, :, :2]  # the rest differs
    index = open_or_create(tmp_path, CONFIG)
    files = [File(Path("/", name), name, None, 1, 1) for name in ("p0", "p1")]
    unit = [torch.nn.functional.normalize(part, dim=-1) for part in (vector, tokens)]
    index.add(["p0", "p1"], Codes(unit[0], unit[1], codes.valid, codes.unknown), files)
    assert duplicate_groups(index, 0.99) == []
    (group,) = duplicate_groups(index, 0.99, class_width=3)
    assert group.similarity > 0.999
