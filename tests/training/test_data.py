"""Pictures come with their labels, whatever cannot be read is named and counted, and a seed decides about the rest."""

import math
import random
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import torch
import torchvision.datasets
from PIL import Image

from mjp.common.errors import InputError
from mjp.pictures.sets import Folder, embedded
from mjp.training.arguments import parse_arguments
from mjp.training.data import UNREADABLE, Augmented, _at_least_one_bit, load_data, seed_transforms, transforms
from mjp.training.evaluate import Unreadable, evaluate
from training.runs import ALONE, make_pictures, settings, started

HALF = (0.5, 0.5, 0.5)


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """Pictures of which one cannot be read in training and two in validation."""
    root = make_pictures(tmp_path / "data")
    (root / "train" / "bright" / "03.png").write_bytes(b"not a picture")
    whole = (root / "val" / "dark" / "05.png").read_bytes()
    (root / "val" / "dark" / "05.png").write_bytes(whole[: len(whole) // 2])
    (root / "val" / "bright" / "07.png").write_bytes(b"")
    return root


def test_the_embedded_pictures_are_balanced() -> None:
    for split, each in (("train", 500), ("val", 100)):
        pictures = embedded(split)
        assert np.bincount(pictures.labels).tolist() == [each] * 10
        assert pictures.pixels.shape == (10 * each, 32, 32, 3)
        assert pictures.load(0).size == (32, 32)


def test_no_embedded_picture_is_in_both_parts() -> None:
    train, val = ({pixels.tobytes() for pixels in embedded(split).pixels} for split in ("train", "val"))
    assert not train & val
    assert len(val) == 1000


def test_the_embedded_pictures_take_at_most_12_megabytes() -> None:
    sizes = [len(path.read_bytes()) for path in files("mjp.pictures.embedded").iterdir() if path.is_file()]
    assert sum(sizes) <= 12_000_000


def test_the_embedded_classes_are_those_of_cifar() -> None:
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    assert embedded("train").classes == embedded("val").classes == names


def test_a_folder_gives_its_classes_in_alphabetical_order(data: Path) -> None:
    pictures = Folder(data / "train")
    assert pictures.classes == ["bright", "dark"]
    assert pictures.labels == [0] * 24 + [1] * 24
    assert pictures.name(30) == str(data / "train" / "dark" / "06.png")
    assert pictures.load(0).mode == "RGB"


def test_grey_and_transparent_pictures_become_colour(data: Path, tmp_path: Path) -> None:
    for mode in ("L", "RGBA", "P", "1"):
        for name in "ab":
            (tmp_path / name).mkdir(exist_ok=True)
            Image.new(mode, (8, 8)).save(tmp_path / name / f"{mode}.png")
    pictures = Folder(tmp_path)
    assert {pictures.load(number).mode for number in range(len(pictures))} == {"RGB"}


def test_a_folder_that_cannot_be_used_is_named(data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no folder .*nowhere"):
        load_data(settings(tmp_path / "nowhere", tmp_path))
    (tmp_path / "train" / "dog").mkdir(parents=True)
    with pytest.raises(InputError, match="dog holds no pictures"):
        Folder(tmp_path / "train")
    Image.new("RGB", (8, 8)).save(tmp_path / "train" / "dog" / "1.png")
    with pytest.raises(InputError, match="1 class folders, at least 2 are needed"):
        Folder(tmp_path / "train")


def test_different_classes_in_training_and_validation_are_named(tmp_path: Path) -> None:
    root = make_pictures(tmp_path / "data", train=1, val=1)
    (root / "val" / "dark").rename(root / "val" / "darker")
    with pytest.raises(InputError, match="different classes: dark, darker"):
        load_data(settings(root, tmp_path))


def test_a_limit_takes_equally_many_pictures_of_every_class(data: Path) -> None:
    train, val = load_data(settings(data, data, limit=10, val_limit=6))
    whole, _ = load_data(settings(data, data))
    assert (np.bincount(train.labels).tolist(), np.bincount(val.labels).tolist()) == ([5, 5], [3, 3])
    assert train.classes == whole.classes
    names = [train.name(number) for number in range(len(train))]
    assert set(names) < {whole.name(number) for number in range(len(whole))}
    assert train.load(7).tobytes() == Image.open(names[7]).tobytes()
    again, _ = load_data(settings(data, data, limit=10, seed=9))
    assert [again.name(number) for number in range(10)] == names
    assert len(load_data(settings(data, data, limit=1000))[0]) == len(whole)


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_offline_the_message_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def offline(*_: Any, **__: Any) -> None:
        raise URLError("no route to host")

    monkeypatch.setattr(torchvision.datasets, name.upper(), offline)
    with pytest.raises(InputError, match=f"{name} is not in .* cannot be downloaded .*--data a folder"):
        load_data(settings(Path(name), tmp_path, data_dir=str(tmp_path)))


def test_named_data_sets_come_from_torchvision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Few:
        data = np.zeros((3, 32, 32, 3), np.uint8)
        targets = (1, 0, 1)
        classes = ("cat", "dog")

        def __init__(self, root: Path, *, train: bool, download: bool) -> None:
            assert (root, download) == (tmp_path, True)

    monkeypatch.setattr(torchvision.datasets, "CIFAR10", Few)
    train, val = load_data(settings(Path("cifar10"), tmp_path, data_dir=str(tmp_path)))
    assert (train.labels, val.classes) == ([1, 0, 1], ["cat", "dog"])


def augmented(root: Path, **changes: Any) -> Augmented:
    transform, _ = transforms(settings(root, root, **changes), HALF, HALF)
    return Augmented(Folder(root / "train"), transform, training=True)


def test_a_sample_depends_on_its_seed_and_on_nothing_else(data: Path) -> None:
    sample = augmented(data, aa="rand-m9-mstd0.5-inc1", reprob=1.0)
    first, other = sample[5, 1][0], sample[5, 2][0]
    torch.rand(7)
    assert torch.equal(sample[5, 1][0], first)
    assert not torch.equal(first, other)


def test_small_pictures_are_padded_and_cropped_not_resized(data: Path) -> None:
    image = augmented(data, hflip=0.0)[0, 0][0]
    pixels = set(Folder(data / "train").load(0).getdata())
    seen = {tuple(colour) for colour in ((image * 0.5 + 0.5) * 255).round().int().flatten(1).T.tolist()}
    assert image.shape == (3, 16, 16)
    assert seen <= pixels | {(0, 0, 0)}


@pytest.mark.parametrize("shape", [(9, 12), (80, 50)])
def test_pictures_of_any_size_fill_a_small_input(data: Path, shape: tuple[int, int]) -> None:
    picture = Image.new("RGB", shape, "white")
    for transform in transforms(settings(data, data), HALF, HALF):
        image = transform(picture)
        assert image.shape == (3, 16, 16)
        assert (image == 1).float().mean() > 0.5  # the rest is padding


def test_large_pictures_are_resized_and_the_centre_is_evaluated(data: Path) -> None:
    train, val = transforms(settings(data, data, input_size=224), HALF, HALF)
    assert type(train.transforms[0]).__name__ == "RandomResizedCropAndInterpolation"
    assert val.transforms[0].size in (256, (256, 256))
    assert tuple(val.transforms[1].size) == (224, 224)


def test_augmentation_is_that_of_the_recipe(data: Path) -> None:
    names = [
        type(step).__name__
        for step in transforms(settings(data, data, aa="rand-m9-mstd0.5-inc1", reprob=0.25), HALF, HALF)[0].transforms
    ]
    assert "RandAugment" in names
    assert "RandomErasing" in names
    assert not {"RandAugment", "RandomErasing"} & {
        type(step).__name__ for step in transforms(settings(data, data), HALF, HALF)[0].transforms
    }


IMAGENET = ["deit_small_imagenet", "swin_tiny_imagenet", "resnet50_imagenet"]


@pytest.mark.parametrize("recipe", [*IMAGENET, "finetune"])
def test_a_recipe_augments_whatever_the_seed(recipe: str) -> None:
    config = parse_arguments(["--recipe", recipe, "--input-size", "36"], "")
    transform, _ = transforms(config, HALF, HALF)
    for seed in range(300):
        seed_transforms(seed)
        assert transform(Image.new("RGB", (4, 4), "orange")).shape == (3, 36, 36)
    assert config.aa in (None, parse_arguments(["--recipe", IMAGENET[0]], "").aa)  # whose policy is looked at below


@pytest.mark.parametrize(("policy", "seeds"), [("rand-m9-mstd0.5-inc1", 20_000), ("rand-m0", 500)])
def test_posterize_is_never_asked_for_0_bits(policy: str, seeds: int) -> None:
    """pillow refuses that. Only the policy draws strengths, so it alone is run over many seeds; timm's own function is
    watched to see that the seeds do ask for 0 bits."""
    config = parse_arguments(["--recipe", IMAGENET[0], "--aa", policy], "")
    (steps,) = [step for step in transforms(config, HALF, HALF)[0].transforms if type(step).__name__ == "RandAugment"]
    picture, bits = Image.new("RGB", (4, 4), "orange"), list[int]()
    (posterize,) = [operation for operation in steps.ops if operation.name.startswith("Posterize")]
    timms = posterize.level_fn.args[0]

    def watched(level: float, strengths: dict[str, Any]) -> tuple[int]:
        bits.extend(timms(level, strengths))
        return (bits[-1],)

    posterize.level_fn = partial(_at_least_one_bit, watched)
    for seed in range(seeds):
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 (it is timm that uses it)
        steps(picture)
    assert bits.count(0) > 10


def test_in_training_the_next_readable_picture_takes_the_place(broken: Path) -> None:
    sample = augmented(broken)
    image, label, unreadable = sample[3, 0]
    following, its_label, fine = sample[4, 0]
    assert torch.equal(image, following)
    assert label == its_label
    assert (unreadable, fine) == (3, UNREADABLE)


def test_in_validation_it_has_a_label_that_no_answer_matches(broken: Path) -> None:
    _, transform = transforms(settings(broken, broken), HALF, HALF)
    image, label, unreadable = Augmented(Folder(broken / "val"), transform, training=False)[7, 0]
    assert (label, unreadable) == (UNREADABLE, 7)
    assert image.shape == (3, 16, 16)


class Oracle(torch.nn.Module):
    """Knows every answer: dark pictures are of class 1, and so is the black one that stands for an unreadable one."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        dark = (images.mean((1, 2, 3)) < 0).float()
        return torch.stack([1 - dark, dark], 1) * 10


def test_unreadable_pictures_count_as_wrong_answers(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = settings(broken, broken, max_unreadable=2)
    _, transform = transforms(config, HALF, HALF)
    unreadable = Unreadable(2, ALONE)
    result = evaluate(Oracle(), Augmented(Folder(broken / "val"), transform, training=False), config, ALONE, unreadable)
    assert result["val_pictures"] == 16
    assert result["val_top1"] == result["val_top5"] == pytest.approx(100 * 14 / 16)
    assert result["val_loss"] == pytest.approx(math.log1p(math.exp(-10)), rel=1e-3)  # of the readable ones
    said = capsys.readouterr().out
    assert all(f"unreadable: {broken / 'val' / name}" in said for name in ("dark/05.png", "bright/07.png"))


def test_evaluation_leaves_the_model_as_it_was(data: Path) -> None:
    config = settings(data, data)
    _, transform = transforms(config, HALF, HALF)
    model = Oracle().train()
    result = evaluate(
        model, Augmented(Folder(data / "val"), transform, training=False), config, ALONE, Unreadable(0, ALONE)
    )
    assert model.training
    assert result["val_top1"] == 100


def test_too_many_unreadable_pictures_stop_the_run_with_their_names(broken: Path) -> None:
    pictures = Folder(broken / "val")
    unreadable = Unreadable(1, ALONE)
    unreadable.note(torch.tensor([-1, 7, 7]), pictures)
    unreadable.note(torch.tensor([7]), pictures)
    with pytest.raises(InputError, match=r"2 unreadable pictures, --max-unreadable allows 1: .*07\.png, .*05\.png"):
        unreadable.note(torch.tensor([13]), pictures)


def test_a_run_names_and_counts_unreadable_pictures(broken: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"1 unreadable pictures, --max-unreadable allows 0: .*bright/03\.png"):
        started(settings(broken, tmp_path / "strict")).train()
    run = started(settings(broken, tmp_path / "tolerant", epochs=1, max_unreadable=3))
    run.train()
    (epoch,) = run.log.read("epoch")
    assert (epoch["unreadable"], epoch["val_pictures"]) == (3, 16)


def test_a_resumed_run_still_knows_what_was_unreadable(broken: Path, tmp_path: Path) -> None:
    for stop in (5, None):
        run = started(settings(broken, tmp_path / "run", epochs=1, max_unreadable=3, stop_after=stop))
        run.train()
    assert run.log.read("epoch")[0]["unreadable"] == 3
