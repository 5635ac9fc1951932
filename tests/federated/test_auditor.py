"""The auditor: what it says about updates of one and of several pictures, and about what is not an update."""

import math

import pytest
import torch

from clients import pictures
from federated.updates import LR, after, auditor, before, make_auditor, model
from mjp.common.errors import InputError
from mjp.common.secret_key import SecretKey
from mjp.federated.auditor import LeakAuditor
from mjp.federated.client import LocalClient
from mjp.federated.data import client_share
from mjp.models import find_model
from mjp.privacy.metrics import psnr


def test_the_update_of_one_picture_is_exposed_and_the_picture_rebuilt() -> None:
    report = auditor().audit(before(), after(), {"lr": LR})
    assert (report.status, report.attack) == ("exposed", "direct")
    rebuilt = report.findings[0].pictures
    assert rebuilt is not None
    assert psnr(pictures()[0], rebuilt[0].double()) > 40


def test_gradients_are_audited_as_well_as_weights() -> None:
    start, end = before(), after()
    gradients = {name: (start[name] - end[name]) / LR for name in end}
    assert auditor().audit(start, gradients, {"kind": "gradient"}).status == "exposed"


def test_several_pictures_are_not_called_exposed_by_a_mixture() -> None:
    report = auditor().audit(before(), after(8), {"lr": LR, "batch": 8})
    assert report.status == "not recovered by any attack that ran"
    assert report.match < 0.9


def test_a_miss_behind_another_optimizer_is_not_covered() -> None:
    report = auditor().audit(before(), after(8), {"lr": LR, "batch": 8, "optimizer": "adamw"})
    assert report.status == "not covered"


def test_an_update_that_no_attack_can_use_is_not_covered() -> None:
    weights = before()
    head = {name: tensor for name, tensor in after().items() if name.startswith("model.head")}
    assert auditor().audit(weights, head, {"lr": LR}).status == "not covered"


@pytest.mark.parametrize("fault", ["nan", "another model", "nothing", "no tensors"])
def test_whatever_comes_there_is_a_report(fault: str) -> None:
    update = {
        "nan": {name: tensor * math.nan for name, tensor in after().items()},
        "another model": {"fc.weight": torch.zeros(3, 3)},
        "nothing": before(),
        "no tensors": {"head": "text"},
    }[fault]
    report = auditor().audit(before(), update, {"lr": LR})  # type: ignore[arg-type]
    assert report.status == "not audited"
    assert report.sentence


def test_figures_have_the_same_names_whatever_happens_and_are_finite() -> None:
    reports = [
        auditor().audit(before(), after(), {"lr": LR}),
        auditor().audit(before(), after(8), {"lr": LR, "batch": 8}),
        auditor().audit(before(), {"x": torch.zeros(1)}, {"lr": LR}),
    ]
    names = [set(report.figures()) for report in reports]
    assert names[0] == names[1] == names[2]
    assert all(math.isfinite(value) for report in reports for value in report.figures().values())


@pytest.mark.parametrize(
    ("limit", "strict", "exposed", "unreadable"),
    [(None, True, False, False), (0.97, False, True, False), (0.97, True, True, True), (1.0, False, True, False)],
)
def test_a_limit_withholds_what_is_exposed_and_strict_also_what_is_unclear(
    limit: float | None, strict: bool, exposed: bool, unreadable: bool
) -> None:
    guard = make_auditor(limit=limit, strict=strict)
    assert guard.audit(before(), after(), {"lr": LR}).withheld is exposed
    assert guard.audit(before(), {"x": torch.zeros(1)}, {"lr": LR}).withheld is unreadable


def test_wrong_settings_are_refused_at_once() -> None:
    with pytest.raises(InputError, match="limit must lie between 0 and 1"):
        LeakAuditor(model(), limit=2)
    with pytest.raises(InputError, match="there is no attack"):
        LeakAuditor(model(), attacks=("magic",))
    with pytest.raises(InputError, match="unknown defence"):
        LeakAuditor(model(), defence="hope")


def test_what_is_claimed_does_not_get_the_shipped_model_past_a_limit() -> None:
    subject = find_model("mini-cifar10-mjp")
    share = client_share(0, 2, subject.size, alpha=0.5, least=8, most=8, seed=0)
    client = LocalClient(subject, *share, defence="none", lr=0.01, key=SecretKey.simulated(1))
    weights = {name: tensor.clone() for name, tensor in client.network.weights().items()}
    sent = client.train(weights, 1)
    guard = LeakAuditor(client.network, attacks=("direct",), limit=0.97, strict=True)
    for claim in ({"steps": 5}, {"lr": 1e-5}):
        assert guard.audit(weights, sent.weights, {**sent.info, **claim}).withheld


@pytest.mark.parametrize("claim", [{"steps": 20, "lr": 1.0}, {"batch": 8, "steps": 20}, {"batch": 1000}])
def test_what_is_claimed_about_an_update_does_not_get_it_past_a_limit(claim: dict[str, float]) -> None:
    report = make_auditor(limit=0.97).audit(before(), after(), {"lr": LR, **claim})
    assert (report.status, report.withheld) == ("exposed", True)


def test_eight_pictures_pass_a_limit() -> None:
    report = make_auditor(limit=0.97, strict=True).audit(before(), after(8), {"lr": LR, "batch": 8})
    assert (report.status, report.withheld) == ("not recovered by any attack that ran", False)


@pytest.mark.parametrize("kind", ["gradient", "delta"])
def test_a_limit_is_for_gradients_and_differences_too(kind: str) -> None:
    sign = -1 if kind == "gradient" else 1
    update = {name: sign * (tensor - before()[name]) for name, tensor in after().items()}
    assert make_auditor(limit=0.97).audit(before(), update, {"kind": kind}).withheld
