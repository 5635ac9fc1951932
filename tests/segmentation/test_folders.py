"""Both layouts give the same classes; whatever is wrong with a data set is said in a sentence before training."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mjp.common.errors import InputError
from mjp.pictures.decode import open_labels
from mjp.segmentation.folders import CAMVID as CAMVID_CLASSES
from mjp.segmentation.folders import find_scenes
from mjp.segmentation.metrics import IGNORE
from segmentation.scenes import ADE20K, CAMVID, CLASSES, scene, write_scenes


@pytest.mark.parametrize(("name", "layout"), [("camvid", CAMVID), ("ade20k", ADE20K)])
def test_both_layouts_give_the_same_classes(name: str, layout: dict[str, tuple[str, str]], tmp_path: Path) -> None:
    data = find_scenes(write_scenes(tmp_path, layout=layout, count=2))
    data.check()
    assert data.layout == name
    assert data.labels.names == CLASSES
    assert data.splits.keys() == layout.keys()
    for offset, scenes in enumerate(data.splits.values()):
        picture, classes = scenes.load(1)
        expected_picture, expected = scene(100 * offset + 1)
        assert picture.tobytes() == expected_picture.tobytes()
        assert np.array_equal(classes[1:], expected[1:])
        assert (classes[0] == IGNORE).all()


def test_without_a_list_the_classes_are_those_of_the_data_set(tmp_path: Path) -> None:
    for layout in (CAMVID, ADE20K):
        root = write_scenes(tmp_path / str(len(layout)), layout=layout, count=1)
        (root / "classes.txt").unlink()
        labels = find_scenes(root).labels
        if layout is CAMVID:
            assert labels.names == CAMVID_CLASSES
            assert (labels.first, labels.void, len(labels.names)) == (0, 11, 11)
        else:
            assert (labels.first, labels.void, len(labels.names)) == (1, 0, 150)
            assert labels.names[:2] == ("class 1", "class 2")
            table = ["Idx\tRatio\tTrain\tVal\tName"] + [f"{k}\t0\t1\t1\tthing {k}, object" for k in range(1, 151)]
            (root / "objectInfo150.txt").write_text("\n".join(table) + "\n")
            assert find_scenes(root).labels.names[149] == "thing 150"


def test_a_palette_image_is_read_by_its_indices(tmp_path: Path) -> None:
    root = write_scenes(tmp_path, count=1)
    before = find_scenes(root).splits["train"].load(0)[1]
    labels = open_labels(root / "train/masks/0.png")
    indexed = Image.new("P", (64, 64))
    indexed.putdata(labels.ravel().tolist())
    indexed.putpalette([9, 9, 9, 8, 8, 8, 7, 7, 7, 0, 0, 0])  # other numbers than the indices
    indexed.save(root / "train/masks/0.png")
    assert np.array_equal(find_scenes(root).splits["train"].load(0)[1], before)


def small_mask(root: Path) -> None:
    Image.new("L", (32, 64)).save(root / "val/masks/3.png")


def foreign_label(root: Path) -> None:
    Image.new("L", (64, 64), 9).save(root / "test/masks/2.png")


def colour_mask(root: Path) -> None:
    Image.new("RGB", (64, 64)).save(root / "test/masks/2.png")


def cut_picture(root: Path) -> None:
    path = root / "train/images/5.png"
    path.write_bytes(path.read_bytes()[:300])


def no_pictures(root: Path) -> None:
    for path in (root / "val/images").iterdir():
        path.unlink()


def no_masks(root: Path) -> None:
    (root / "val/masks").rename(root / "val/labels")


def one_class(root: Path) -> None:
    (root / "classes.txt").write_text("thing\n")


PROBLEMS: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing mask": (lambda root: (root / "train/masks/4.png").unlink(), r"images/4\.png has no mask: .*masks/4\.png"),
    "other size": (small_mask, r"masks/3\.png has 32 x 64 pixels and its picture 64 x 64"),
    "label out of range": (foreign_label, r"masks/2\.png has the label 9: labels must be 0 to 2, or 3 for void"),
    "colours": (colour_mask, r"masks/2\.png cannot be read.*one number for each pixel"),
    "cut off": (cut_picture, r"images/5\.png cannot be read"),
    "no pictures": (no_pictures, r"val/images holds no pictures"),
    "no masks": (no_masks, r"there is no folder .*val/masks"),
    "one class": (one_class, r"classes\.txt names 1 classes"),
    "other layout": (lambda root: (root / "train").rename(root / "training"), r"neither train/images .* docs"),
}


@pytest.mark.parametrize("kind", PROBLEMS)
def test_what_is_wrong_is_said_in_one_sentence(kind: str, tmp_path: Path) -> None:
    spoil, message = PROBLEMS[kind]
    root = write_scenes(tmp_path)
    spoil(root)
    with pytest.raises(InputError, match=message) as refusal:
        find_scenes(root).check()
    assert "\n" not in str(refusal.value)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no folder .*nowhere"):
        find_scenes(tmp_path / "nowhere")


def test_several_problems_are_counted(tmp_path: Path) -> None:
    root = write_scenes(tmp_path)
    small_mask(root)
    foreign_label(root)
    with pytest.raises(InputError, match="1 other picture"):
        find_scenes(root).check()


def test_a_split_without_a_labelled_pixel_is_refused(tmp_path: Path) -> None:
    root = write_scenes(tmp_path, count=2)
    for number in range(2):
        Image.new("L", (64, 64), len(CLASSES)).save(root / "test/masks" / f"{number}.png")
    with pytest.raises(InputError, match="every pixel of every mask in test is void"):
        find_scenes(root).check()
