"""Checkpoints of the authors' code: every row lands where it belongs, and nothing in the file runs."""

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import mjp
from method.tiny import generator, pictures, vit


def authors_weights(network: Any, *, width: int = 48, seed: int = 3) -> dict[str, Tensor]:
    """A state dict in the authors' layout: timm's names, one embedding of 1 + N + 1 rows, their localization head."""
    source = generator(seed)
    weights = {name: torch.randn(t.shape, generator=source) for name, t in network.state_dict().items()}
    del weights["pos_embed"]
    weights["pos_embed.weight"] = torch.randn(18, width, generator=source)
    for layer, rows in (("0", width), ("2", 2)):
        weights[f"dlocr.layers.{layer}.weight"] = torch.randn(rows, width, generator=source)
        weights[f"dlocr.layers.{layer}.bias"] = torch.randn(rows, generator=source)
    return weights


@pytest.fixture
def yacs() -> Any:
    """A stand-in for the yacs package, importable only while a checkpoint is written."""

    class CfgNode(dict[str, Any]):
        def __init__(self, values: dict[str, Any]) -> None:
            super().__init__(values)
            self.__dict__.update(
                __immutable__=False, __deprecated_keys__=set(), __renamed_keys__={}, __new_allowed__=False
            )

    CfgNode.__module__, CfgNode.__qualname__ = "yacs.config", "CfgNode"
    package, module = types.ModuleType("yacs"), types.ModuleType("yacs.config")
    module.CfgNode = CfgNode  # type: ignore[attr-defined]
    package.config = module  # type: ignore[attr-defined]
    return package


def save_like_the_authors(path: Path, weights: dict[str, Tensor], yacs: Any) -> None:
    node = yacs.config.CfgNode
    config = node({"MODEL": node({"NAME": "deit_small_mjp", "MASK_RATIO": 0.03}), "TRAIN": node({"EPOCHS": 300})})
    sys.modules.update({"yacs": yacs, "yacs.config": yacs.config})
    try:
        content = {"model": weights, "optimizer": {"state": {}, "param_groups": []}, "epoch": 299, "config": config}
        torch.save(content, path)
    finally:
        del sys.modules["yacs"], sys.modules["yacs.config"]


@pytest.fixture
def checkpoint(tmp_path: Path, yacs: Any) -> tuple[Path, dict[str, Tensor]]:
    weights = authors_weights(vit())
    save_like_the_authors(tmp_path / "ckpt.pth", weights, yacs)
    return tmp_path / "ckpt.pth", weights


def test_every_row_lands_where_it_belongs(checkpoint: tuple[Path, dict[str, Tensor]]) -> None:
    path, weights = checkpoint
    model = mjp.MJP(vit(), "reference")
    mjp.load_reference_checkpoint(path, model)
    ours = model.weights()
    table = weights.pop("pos_embed.weight")
    assert torch.equal(ours.pop("model.pos_embed"), table[:17].unsqueeze(0))  # class token, then the 16 patches
    assert torch.equal(ours.pop("unknown"), table[17])
    for name, tensor in weights.items():
        head = name.startswith("dlocr.layers.")
        place = name.replace("dlocr.layers", "localizer.head") if head else f"model.{name}"
        assert torch.equal(ours.pop(place), tensor)
    assert ours == {}


def test_nothing_of_yacs_is_imported(checkpoint: tuple[Path, dict[str, Tensor]]) -> None:
    mjp.load_reference_checkpoint(checkpoint[0], mjp.MJP(vit(), "reference"))
    assert not [name for name in sys.modules if name.startswith("yacs")]


def test_code_of_yacs_is_not_run_even_when_it_is_there(
    checkpoint: tuple[Path, dict[str, Tensor]], yacs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def trap(name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: ran.append(name)

    for name in ("__new__", "__init__", "__setstate__", "__setitem__", "__getstate__", "update"):
        setattr(yacs.config.CfgNode, name, trap(name))
    monkeypatch.setitem(sys.modules, "yacs", yacs)
    monkeypatch.setitem(sys.modules, "yacs.config", yacs.config)
    mjp.load_reference_checkpoint(checkpoint[0], mjp.MJP(vit(), "reference"))
    assert ran == []


def test_bare_state_dicts_and_those_of_parallel_training_load_too(tmp_path: Path) -> None:
    weights = authors_weights(vit())
    torch.save({f"module.{name}": tensor for name, tensor in weights.items()}, tmp_path / "bare.pth")
    model = mjp.MJP(vit(), "paper")
    mjp.load_reference_checkpoint(tmp_path / "bare.pth", model)
    assert torch.equal(model.get_parameter("unknown"), weights["pos_embed.weight"][-1])


def test_index_embedding_of_the_class_token_is_folded_into_it(tmp_path: Path) -> None:
    network = vit()
    weights = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    weights["index_embed"] = torch.randn(1, 17, 48, generator=generator(1))
    torch.save({"model": weights}, tmp_path / "index.pth")
    model = mjp.MJP(vit(), mjp.variant("F")).eval()
    mjp.load_reference_checkpoint(tmp_path / "index.pth", model)
    network.pos_embed.data += weights["index_embed"]  # the authors add both tables, class token included
    assert torch.allclose(model(pictures(2)), network(pictures(2)), atol=1e-5)


# --- refusals ---------------------------------------------------------------------------------------------------------


class Malicious:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


def unchanged_after(load: Callable[[mjp.MJP], None], match: str) -> None:
    """The file is refused with this message and the model keeps every weight."""
    model = mjp.MJP(vit(), "reference")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(mjp.InputError, match=match):
        load(model)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_malicious_pickle_is_refused_and_not_run(tmp_path: Path) -> None:
    path, marker = tmp_path / "evil.pth", tmp_path / "ran"
    torch.save({"model": authors_weights(vit()), "config": Malicious(marker)}, path)
    unchanged_after(lambda model: mjp.load_reference_checkpoint(path, model), r"evil\.pth.*not loaded")
    assert not marker.exists()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_truncated_file_is_refused(checkpoint: tuple[Path, dict[str, Tensor]], share: float) -> None:
    content = checkpoint[0].read_bytes()
    checkpoint[0].write_bytes(content[: int(share * len(content))])
    unchanged_after(lambda model: mjp.load_reference_checkpoint(checkpoint[0], model), r"ckpt\.pth.*not loaded")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    unchanged_after(lambda model: mjp.load_reference_checkpoint(tmp_path / "no.pth", model), r"no\.pth is not a file")


def test_another_width_is_refused_with_names_and_sizes(tmp_path: Path) -> None:
    path = tmp_path / "wide.pth"
    torch.save({"model": authors_weights(vit(embed_dim=60), width=60)}, path)
    unchanged_after(lambda m: mjp.load_reference_checkpoint(path, m), r"does not fit.*\(60,\).*model \(48,\)")


def test_another_number_of_patches_is_refused_by_name(tmp_path: Path) -> None:
    weights = authors_weights(vit())
    weights["pos_embed.weight"] = torch.zeros(30, 48)
    torch.save({"model": weights}, tmp_path / "large.pth")
    unchanged_after(
        lambda model: mjp.load_reference_checkpoint(tmp_path / "large.pth", model),
        r"model\.pos_embed \(file \(1, 29, 48\), model \(1, 17, 48\)\)",
    )


def test_a_configuration_without_their_head_is_refused_by_name(checkpoint: tuple[Path, dict[str, Tensor]]) -> None:
    with pytest.raises(mjp.InputError, match=r"localizer\.head\.0\.bias .*model none"):
        mjp.load_reference_checkpoint(checkpoint[0], mjp.MJP(vit(), mjp.variant("G")))


@pytest.mark.parametrize("content", [[1, 2], {"model": 3}, {"model": {}}, {"epoch": 3}, torch.zeros(3)])
def test_a_file_without_weights_is_refused(content: Any, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "other.pth")
    unchanged_after(
        lambda model: mjp.load_reference_checkpoint(tmp_path / "other.pth", model), "holds no table of weights"
    )
