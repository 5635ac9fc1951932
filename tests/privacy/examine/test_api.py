"""The Python API: the same code as the commands, with pictures and verdicts as values."""

from clients import MEAN, STD, pictures, send, tiny  # isort: skip  mjp before timm

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import mjp.privacy
from mjp.common.errors import InputError
from mjp.models import Subject
from mjp.pictures.preprocessing import Preprocessing
from mjp.privacy import Finding, UpdateInfo, audit_pictures, audit_update
from mjp.privacy.metrics import psnr


def subject() -> Subject:
    return Subject("tiny", tiny(dtype=torch.float32), Preprocessing((32, 32), MEAN, STD, 1.0))


def test_every_exported_name_is_there() -> None:
    assert all(getattr(mjp.privacy, name) is not None for name in mjp.privacy.__all__)
    with pytest.raises(AttributeError):
        _ = mjp.privacy.absent


def test_an_update_from_memory_is_rebuilt_and_judged() -> None:
    network, update, _ = send(tiny())
    weights = network.unwrap().state_dict()
    for before, info in ((None, update.info), (weights, {"size": (32, 32), "mean": MEAN, "std": STD})):
        (finding,) = audit_update(before, update.tensors, info, network.unwrap(), attacks=["direct"])
        assert finding.pictures is not None
        assert psnr(pictures()[0], finding.pictures[0]).item() > 100
        assert finding.verdict is not None
        assert finding.verdict.outcome == "explains"
        assert "explains the update" in finding.verdict.sentence


def test_weights_after_local_steps_are_told_apart_from_gradients_by_kind() -> None:
    network, update, _ = send(tiny(), "fedavg:3")
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    info = UpdateInfo(kind="fedavg", steps=3, lr=0.1, size=(32, 32), mean=MEAN, std=STD)
    (finding,) = audit_update(before, update.tensors, info, network, attacks=["direct"])
    assert finding.verdict is not None
    assert finding.verdict.outcome == "explains"


def test_an_update_from_files_is_read_with_its_information(tmp_path: Path) -> None:
    network, update, _ = send(tiny(dtype=torch.float32), "mjp:0.0625")
    update.save(tmp_path / "update.safetensors")
    save_file(network.state_dict(), tmp_path / "weights.safetensors")
    paths = (tmp_path / "weights.safetensors", tmp_path / "update.safetensors")
    findings = audit_update(*paths, None, network, attacks=["subspace", "april"])
    assert [finding.verdict.outcome for finding in findings if finding.verdict] == ["explains", "refused"]
    assert findings[1].pictures is None


def test_the_callers_model_keeps_its_weights() -> None:
    network, update, _ = send(tiny())
    kept = network.state_dict()["model.head.bias"].clone()
    other = {name: tensor + 1 for name, tensor in network.unwrap().state_dict().items()}
    (finding,) = audit_update(other, update.tensors, update.info, network.unwrap(), attacks=["direct"])
    assert torch.equal(network.state_dict()["model.head.bias"], kept)
    assert finding.verdict is not None
    assert finding.verdict.outcome != "explains"  # those are not the client's weights


@pytest.mark.parametrize(
    ("after", "info", "message"),
    [
        ({"head.bias": 3}, {}, "ordinary tensors"),
        ({}, {}, "dictionary of tensors"),
        ({"head.bias": torch.ones(10)}, {"seed": 3}, "'seed' is not one of"),
        ({"head.bias": torch.ones(10)}, {"batch": 0}, "at least 1"),
        ({"head.bias": torch.ones(10)}, {"defence": "hope"}, "unknown defence"),
        ({"head.bias": torch.ones(10).to_sparse()}, {}, "ordinary tensors"),
        ({"head.bias": torch.full((10,), torch.nan)}, {"size": (32, 32)}, "NaN"),
    ],
)
def test_what_does_not_fit_is_refused(after: dict[str, torch.Tensor], info: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        audit_update(None, after, info, tiny().unwrap())


def test_pictures_are_audited_under_every_defence() -> None:
    seen: list[Finding] = []
    batch = pictures(2).float()
    choice = {"defences": ["none", "mjp:0.5"], "attacks": ["direct"]}
    findings = audit_pictures(subject(), batch, **choice, names=["a", "b"], watch=seen.append)  # type: ignore[arg-type]
    keys = [(finding.picture, finding.defence, finding.attack) for finding in findings]
    assert keys == [(p, d, a) for p in "ab" for d in ("none", "mjp:0.5") for a in ("guess", "direct")]
    assert seen == findings
    plain = findings[1]
    assert plain.pictures is not None
    assert psnr(batch[0], plain.pictures[0].float()).item() > 50
    assert plain.scores["a"][0].psnr > 50
    assert plain.verdict is not None
    assert plain.verdict.outcome == "explains"
    assert findings[0].verdict is None
    assert set(findings[3].scores) == {"b", "c"}


def test_precision_is_the_clients_and_the_callers_model_keeps_its_own() -> None:
    target = subject()
    choice = {"attacks": ["direct"], "dtype": torch.float64}
    _, finding = audit_pictures(target, pictures(1).float(), **choice)  # type: ignore[arg-type]
    assert finding.scores["a"][0].psnr > 100
    assert next(target.model.parameters()).dtype == torch.float32


def test_a_batch_is_filled_with_the_other_pictures_and_mirrored_ones() -> None:
    findings = audit_pictures(subject(), pictures(2).float(), defences=["batch:4"], attacks=["direct"])
    assert [finding.picture for finding in findings] == ["0", "0", "1", "1"]
    assert len(findings[0].scores["a"]) == 4


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (torch.zeros(1, 3, 16, 16), r"\(n, 3, 32, 32\)"),
        (torch.zeros(3, 32, 32), r"\(n, 3, 32, 32\)"),
        (torch.full((1, 3, 32, 32), 200.0), "from 0 to 1"),
        (torch.full((1, 3, 32, 32), torch.nan), "from 0 to 1"),
    ],
)
def test_pictures_that_are_none_are_refused(batch: torch.Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        audit_pictures(subject(), batch)


def test_a_module_is_audited_like_a_subject() -> None:
    module = tiny(dtype=torch.float32)
    module.preprocessing = subject().preprocessing
    shown = pictures()[:1].float()
    for model in (subject(), module):
        guess, finding = audit_pictures(model, shown, attacks=["direct"])
        assert (guess.attack, finding.attack) == ("guess", "direct")
        assert finding.pictures is not None
        assert psnr(shown[0].double(), finding.pictures[0].double()).item() > 60


def test_several_rounds_make_a_picture_exact() -> None:
    settings = {"defences": ["mjp:0.25"], "attacks": ["rounds"], "label": 4, "seed": 1}
    _, finding = audit_pictures(subject(), pictures().float(), rounds=6, **settings)  # type: ignore[arg-type]
    assert finding.scores["c"][0].exact == 1
    assert 2 <= finding.details["rounds_until_exact"] <= 6
    for rounds in (0, 1, 101):
        with pytest.raises(InputError, match="rounds"):
            audit_pictures(subject(), pictures().float(), rounds=rounds, **settings)  # type: ignore[arg-type]
