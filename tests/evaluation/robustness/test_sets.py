"""Which pictures are read, under which labels, and what a folder lacks."""

import mjp  # isort: skip  before timm: it makes torchvision importable

import pickle
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from PIL import Image

from mjp.evaluation.robustness.corrupt import corrupt
from mjp.evaluation.robustness.corruptions import CORRUPTIONS
from mjp.evaluation.robustness.imagenet_subsets import IMAGENET_A, IMAGENET_O, wordnet_ids
from mjp.evaluation.robustness.sets import CorruptedFolders, Generated, ImageNetSubset, output_names
from mjp.models import Subject
from mjp.pictures.preprocessing import Preprocessing
from mjp.pictures.sets import embedded
from mjp.pictures.tensors import to_image, to_tensor

INFO = Path(timm.__file__).parent / "data" / "_info"


def subject(outputs: int, classes: list[str] | None = None) -> Subject:
    size: dict[str, Any] = {"img_size": 32, "patch_size": 16, "depth": 1, "embed_dim": 8, "num_heads": 1}
    model = mjp.MJP(timm.create_model("deit_tiny_patch16_224", num_classes=outputs, **size))
    model.classes = classes
    return Subject("tiny", model, Preprocessing((32, 32), (0.5, 0.5, 0.5), (0.5, 0.5, 0.5), 1.0))


def fill(root: Path, classes: list[str], *, shade: int = 0) -> None:
    for k, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        Image.new("RGB", (32, 32), (shade, k % 256, 0)).save(root / name / "a.png")


# the 200 classes


def test_classes_of_imagenet_a_are_those_that_timm_lists() -> None:
    assert list(IMAGENET_A) == [int(line) for line in (INFO / "imagenet_a_indices.txt").read_text().split()]
    assert wordnet_ids(IMAGENET_A) == (INFO / "imagenet_a_synsets.txt").read_text().split()


def test_imagenet_o_has_200_classes_some_of_them_of_imagenet_a() -> None:
    assert len(set(IMAGENET_O)) == 200
    assert list(IMAGENET_O) == sorted(IMAGENET_O)
    ids = wordnet_ids(IMAGENET_O)
    assert (ids[0], ids[-1]) == ("n01443537", "n13052670")  # goldfish, hen-of-the-woods
    assert 0 < len(set(IMAGENET_O) & set(IMAGENET_A)) < 200


def test_outputs_are_found_by_name_whatever_their_order(tmp_path: Path) -> None:
    ids = (INFO / "imagenet_synsets.txt").read_text().split()
    fill(tmp_path, wordnet_ids(IMAGENET_A))
    subset = ImageNetSubset(tmp_path, IMAGENET_A, allow_missing=False)
    assert subset.columns(subject(1000)) == list(IMAGENET_A)
    assert subset.columns(subject(1000, ids[::-1])) == [999 - k for k in IMAGENET_A]
    pictures = subset.pictures()
    assert [pictures.load(k).getpixel((0, 0)) for k in (0, 7)] == [(0, 0, 0), (0, 7, 0)]
    assert pictures.labels == list(range(200))


def test_a_model_of_other_classes_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, wordnet_ids(IMAGENET_A))
    subset = ImageNetSubset(tmp_path, IMAGENET_A, allow_missing=False)
    with pytest.raises(mjp.InputError, match="needs a model of the 1,000 ImageNet classes: tiny has 10"):
        subset.columns(subject(10))
    with pytest.raises(mjp.InputError, match="tiny does not know n01498041"):
        subset.columns(subject(2, ["cat", "dog"]))


def test_a_missing_class_is_named_unless_it_may_be(tmp_path: Path) -> None:
    ids = wordnet_ids(IMAGENET_A)
    fill(tmp_path, ids[:3] + ids[4:])
    (tmp_path / ids[3]).mkdir()  # empty is missing
    with pytest.raises(mjp.InputError, match=f"lacks {ids[3]}: complete it, or pass --allow-missing"):
        ImageNetSubset(tmp_path, IMAGENET_A, allow_missing=False)
    subset = ImageNetSubset(tmp_path, IMAGENET_A, allow_missing=True)
    assert subset.missing == [ids[3]]
    assert len(subset.columns(subject(1000))) == 200  # it may still be answered
    assert subset.pictures().labels == [k for k in range(200) if k != 3]


def test_a_foreign_class_is_named_unless_others_are_expected(tmp_path: Path) -> None:
    fill(tmp_path, [*wordnet_ids(IMAGENET_O), "n01440764"])
    with pytest.raises(mjp.InputError, match="has a folder n01440764, which is none of its 200 classes"):
        ImageNetSubset(tmp_path, IMAGENET_O, allow_missing=True)
    assert len(ImageNetSubset(tmp_path, IMAGENET_O, allow_missing=False, others_too=True).pictures()) == 200


# ImageNet-C


def corrupted(root: Path, classes: list[str], names: tuple[str, ...] = ("fog", "snow"), inside: str = "") -> None:
    for name in names:
        for severity in (1, 2):
            fill(root / inside / name / str(severity), classes, shade=severity)


def read(root: Path, *, allow_missing: bool = False) -> CorruptedFolders:
    return CorruptedFolders(root, ("fog", "snow"), (1, 2), allow_missing)


@pytest.mark.parametrize("inside", ["", "weather"])
def test_corruptions_are_found_at_the_top_and_one_folder_deeper(tmp_path: Path, inside: str) -> None:
    corrupted(tmp_path, ["a", "b"], inside=inside)
    grid, model = read(tmp_path), subject(2)
    assert grid.cells() == [("fog", 1), ("fog", 2), ("snow", 1), ("snow", 2)]
    assert grid.gaps(model) == []
    pictures = grid.pictures(model, ("snow", 2))
    assert [pictures.load(k).getpixel((0, 0)) for k in range(2)] == [(2, 0, 0), (2, 1, 0)]
    assert pictures.labels == [0, 1]


def test_labels_follow_the_names_that_the_model_knows(tmp_path: Path) -> None:
    corrupted(tmp_path, ["a", "b"])
    model = subject(2, ["b", "a"])
    assert read(tmp_path).pictures(model, ("fog", 1)).labels == [0, 1]
    assert read(tmp_path).pictures(model, ("fog", 1)).load(0).getpixel((0, 0)) == (1, 1, 0)  # b comes first


def test_everything_that_is_missing_is_named(tmp_path: Path) -> None:
    corrupted(tmp_path, ["a", "b", "c"], names=("fog",))
    (tmp_path / "fog" / "2").rename(tmp_path / "elsewhere")
    (tmp_path / "fog" / "1" / "b" / "a.png").unlink()
    model = subject(3, ["a", "b", "c"])
    with pytest.raises(mjp.InputError, match="lacks fog/2, snow, fog/1/b: complete it"):
        read(tmp_path).gaps(model)
    grid = read(tmp_path, allow_missing=True)
    assert grid.gaps(model) == ["fog/2", "snow", "fog/1/b"]
    assert grid.cells() == [("fog", 1)]
    assert grid.pictures(model, ("fog", 1)).labels == [0, 2]


def test_classes_that_the_model_does_not_know_are_named(tmp_path: Path) -> None:
    corrupted(tmp_path, ["a", "b", "zebra"])
    with pytest.raises(mjp.InputError, match="has pictures of zebra, a class that tiny does not know"):
        read(tmp_path).gaps(subject(2, ["a", "b"]))
    with pytest.raises(mjp.InputError, match="has 2 classes, the pictures have 3"):
        read(tmp_path).gaps(subject(2))


@pytest.mark.parametrize("classes", [[], ["a"]])
def test_a_folder_without_classes_or_with_one_is_refused(tmp_path: Path, classes: list[str]) -> None:
    for root in (tmp_path / "fog" / "1", tmp_path / "plain"):
        root.mkdir(parents=True)
        fill(root, classes)
    message = f"has {len(classes)} class folders with pictures, at least 2 are needed"
    with pytest.raises(mjp.InputError, match=message):
        read(tmp_path, allow_missing=True)
    with pytest.raises(mjp.InputError, match=message):
        ImageNetSubset(tmp_path / "plain", IMAGENET_A, allow_missing=True)


def test_a_folder_without_any_corruption_is_refused_even_if_things_may_be_missing(tmp_path: Path) -> None:
    with pytest.raises(mjp.InputError, match="holds no folder CORRUPTION/SEVERITY, such as fog/1"):
        read(tmp_path, allow_missing=True)
    with pytest.raises(mjp.InputError, match="there is no folder"):
        read(tmp_path / "nowhere")


def test_names_of_outputs() -> None:
    ids = (INFO / "imagenet_synsets.txt").read_text().split()
    assert output_names(subject(1000), ids[5:7]) == ids
    assert output_names(subject(2), {"b", "a"}) == ["a", "b"]
    assert output_names(subject(2, ["b", "a"]), {"a"}) == ["b", "a"]


# corruptions drawn on the fly


def test_a_generated_picture_depends_on_seed_corruption_severity_and_number_alone() -> None:
    model, source = subject(10), embedded("val")

    def drawn(seed: int, name: str, severity: int, number: int) -> bytes:
        grid = Generated(source, CORRUPTIONS, (1, 5), seed)
        return grid.pictures(model, (name, severity)).load(number).tobytes()

    reference = drawn(0, "fog", 1, 3)
    torch.manual_seed(5)
    assert drawn(0, "fog", 1, 3) == reference
    others = {drawn(1, "fog", 1, 3), drawn(0, "snow", 1, 3), drawn(0, "fog", 5, 3), drawn(0, "fog", 1, 4)}
    assert len(others | {reference}) == 5


def test_equal_pictures_get_different_noise() -> None:
    source = embedded("val")
    source.pixels[1] = source.pixels[0]
    pictures = Generated(source, CORRUPTIONS, (1,), 0).pictures(subject(10), ("gaussian_noise", 1))
    assert pictures.load(0).tobytes() != pictures.load(1).tobytes()


def test_a_generated_picture_is_cut_first_and_corrupted_at_the_size_of_the_model(tmp_path: Path) -> None:
    source = embedded("val")
    pictures = Generated(source, CORRUPTIONS, (4,), 0).pictures(subject(10), ("contrast", 4))
    plain = to_tensor(source.load(2))
    expected = to_image(corrupt(plain, "contrast", 4, torch.Generator()))
    assert pictures.load(2).tobytes() == expected.tobytes()
    fill(tmp_path, ["a", "b"])
    wide = Image.new("RGB", (100, 64))
    wide.save(tmp_path / "a" / "a.png")
    from mjp.pictures.sets import Folder

    assert Generated(Folder(tmp_path), CORRUPTIONS, (1,), 0).pictures(subject(2), ("fog", 1)).load(0).size == (32, 32)


def test_generated_pictures_can_be_sent_to_a_worker() -> None:
    pictures = Generated(embedded("val"), CORRUPTIONS, (1,), 0).pictures(subject(10), ("snow", 1))
    copy = pickle.loads(pickle.dumps(pictures))
    assert copy.load(0).tobytes() == pictures.load(0).tobytes()
    assert (len(copy), copy.name(3), copy.labels[:5]) == (1000, pictures.name(3), pictures.labels[:5])
