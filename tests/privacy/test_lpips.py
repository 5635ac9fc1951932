"""LPIPS through the lpips package, with a random AlexNet in place of the trained one: nothing is downloaded."""

import sys
import warnings
from pathlib import Path

import lpips
import pytest
import torch
import torchvision
from torch import Tensor

from mjp.common.errors import InputError
from mjp.privacy.lpips import find_lpips


@pytest.fixture(scope="module")
def backbone() -> dict[str, Tensor]:
    """What torchvision would have saved, with its linear layers left out."""
    with torch.random.fork_rng(devices=[]):  # torchvision draws weights from torch's global generator
        torch.manual_seed(5)
        features = torchvision.models.AlexNet().features.state_dict()
    return {f"features.{name}": weight for name, weight in features.items()}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    return folder


def pair(size: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    a, b = torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(seed))
    return a, b


def packages_own(backbone: dict[str, Tensor]) -> lpips.LPIPS:
    """The package's network with torchvision's modules put into it as the package itself does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it uses a retired argument of torchvision
        network = lpips.LPIPS(net="alex", pnet_rand=True, verbose=False)
    features = torchvision.models.AlexNet().features
    features.load_state_dict({name.removeprefix("features."): weight for name, weight in backbone.items()})
    slices = (range(0, 2), range(2, 5), range(5, 8), range(8, 10), range(10, 12))  # up to each of the five ReLUs
    for number, part in enumerate(slices, 1):
        setattr(network.net, f"slice{number}", torch.nn.Sequential(*(features[n] for n in part)))
    return network


def test_equals_the_packages_own_network(backbone: dict[str, Tensor], tmp_path: Path) -> None:
    torch.save(backbone, tmp_path / "alexnet.pth")
    measure, source = find_lpips(tmp_path / "alexnet.pth")
    assert measure is not None
    assert "alexnet.pth" in source
    network = packages_own(backbone)
    for size in (31, 32, 64, 97):
        a, b = pair(size)
        with torch.no_grad():
            expected = network(2 * a[None] - 1, 2 * b[None] - 1).item()
        assert expected > 0
        assert measure(a, b) == pytest.approx(expected, rel=1e-6)
        assert measure(a.double(), b.double()) == pytest.approx(expected, rel=1e-6)
        assert measure(a, a) == 0


def test_takes_the_backbone_from_torchvisions_cache(backbone: dict[str, Tensor], cache: Path, tmp_path: Path) -> None:
    assert find_lpips()[0] is None
    torch.save(backbone, cache / "alexnet-owt-7be5be79.pth")
    torch.save(backbone, tmp_path / "named.pth")
    (cached, source), (named, _) = find_lpips(), find_lpips(tmp_path / "named.pth")
    assert cached is not None
    assert named is not None
    assert str(cache) in source
    assert cached(*pair(40)) == named(*pair(40))


def test_is_not_available_without_a_backbone_and_says_why(cache: Path) -> None:
    metric, reason = find_lpips()
    assert metric is None
    assert reason.startswith("not available: no alexnet-")
    assert str(cache) in reason


def test_is_not_available_without_the_package_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lpips", None)
    assert find_lpips("anything.pth") == (None, "not available: pip install 'mjp[lpips]'")


def test_pictures_too_small_for_alexnet_have_no_lpips(backbone: dict[str, Tensor], tmp_path: Path) -> None:
    torch.save(backbone, tmp_path / "alexnet.pth")
    measure, _ = find_lpips(tmp_path / "alexnet.pth")
    assert measure is not None
    assert measure(*pair(30)) is None


def test_a_file_that_is_no_alexnet_is_bad_input(backbone: dict[str, Tensor], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        find_lpips(tmp_path / "missing.pth")
    (tmp_path / "text.pth").write_text("not weights")
    with pytest.raises(InputError, match="cannot be read"):
        find_lpips(tmp_path / "text.pth")
    torch.save({"features.0.weight": backbone["features.0.weight"]}, tmp_path / "part.pth")
    with pytest.raises(InputError, match=r"features\.10\.bias"):
        find_lpips(tmp_path / "part.pth")
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(InputError, match="not an AlexNet"):
        find_lpips(tmp_path / "list.pth")
    torch.save({name: torch.zeros(2, 2) for name in backbone}, tmp_path / "shapes.pth")
    with pytest.raises(InputError, match="not torchvision's AlexNet"):
        find_lpips(tmp_path / "shapes.pth")


def test_looking_for_it_leaves_the_global_generator_alone(backbone: dict[str, Tensor], tmp_path: Path) -> None:
    torch.save(backbone, tmp_path / "alexnet.pth")
    before = torch.get_rng_state()
    find_lpips(tmp_path / "alexnet.pth")
    assert torch.equal(before, torch.get_rng_state())
