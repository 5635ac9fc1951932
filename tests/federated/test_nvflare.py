"""The filters in one process, with NVFlare's own contexts, exchange objects and privacy policy."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from federated.updates import LR, after, before, make_auditor
from mjp.common.errors import InputError
from mjp.common.results import read_results
from mjp.federated.auditor import LeakAuditor
from mjp.federated.journal import Journal

pytest.importorskip("nvflare", reason="NVFlare is not installed: pip install 'mjp[nvflare]'")

from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, ReservedKey, ReturnCode
from nvflare.apis.fl_context import FLContext, FLContextManager
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.app_common.app_event_type import AppEventType

from mjp.federated.nvflare import AuditLog, KeepWeights, LeakAudit, TolerantFedAvgRecipe, finish_run
from mjp.federated.nvflare.exchange import FIGURES, amount


@pytest.fixture(autouse=True)
def _tiny_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings name a model by text; these tests have theirs in memory."""

    def build(settings: Any) -> LeakAuditor:
        limit = None if settings.limit < 0 else settings.limit
        return make_auditor(limit=limit, strict=settings.strict)

    monkeypatch.setattr("mjp.federated.nvflare.client_filters.find_auditor", build)


def context(name: str = "site-1") -> FLContext:
    manager = FLContextManager(identity_name=name, job_id="job", public_stickers={}, private_stickers={})
    return manager.new_context()


def message(kind: str, weights: dict[str, Any], **meta: Any) -> Shareable:
    data = {name: tensor.numpy() for name, tensor in weights.items()}
    shareable = DXO(kind, data=data, meta=meta).to_shareable()
    shareable.set_header("current_round", 0)
    return shareable


def leave(kind: str, weights: dict[str, Any], **settings: Any) -> Shareable:
    """A task goes through the input filter, a result through the audit."""
    fl_ctx = context()
    KeepWeights().process(message(DataKind.WEIGHTS, before()), fl_ctx)
    return LeakAudit(**settings).process(message(kind, weights, mjp={"lr": LR, "batch": 1}), fl_ctx)


def difference() -> dict[str, Any]:
    start = before()
    return {name: tensor - start[name] for name, tensor in after().items()}


@pytest.mark.parametrize("kind", [DataKind.WEIGHTS, DataKind.WEIGHT_DIFF])
def test_whole_weights_and_differences_are_audited(kind: str) -> None:
    weights = after() if kind == DataKind.WEIGHTS else difference()
    result = leave(kind, weights)
    figures = from_shareable(result).get_meta_prop(FIGURES)
    assert figures["leak_exposed"] == 1
    assert figures["leak_match_direct"] > 0.999


def test_training_in_place_does_not_change_what_was_kept() -> None:
    fl_ctx = context()
    task = message(DataKind.WEIGHTS, before())
    KeepWeights().process(task, fl_ctx)
    for array in from_shareable(task).data.values():
        array += 1
    result = LeakAudit(lr=LR).process(message(DataKind.WEIGHTS, after()), fl_ctx)
    assert from_shareable(result).get_meta_prop(FIGURES)["leak_exposed"] == 1


def test_above_the_limit_nothing_leaves() -> None:
    result = leave(DataKind.WEIGHTS, after(), limit=0.97)
    assert result.get_return_code() == ReturnCode.TASK_RESULT_FILTER_ERROR
    assert "DXO" not in result


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("fault", ["nan", "another model", "another kind", "no weights kept"])
def test_what_cannot_be_audited_leaves_unless_the_site_is_strict(fault: str, strict: bool) -> None:
    audit = LeakAudit(limit=0.97, strict=strict, lr=LR)
    fl_ctx = context()
    if fault != "no weights kept":
        KeepWeights().process(message(DataKind.WEIGHTS, before()), fl_ctx)
    result = {
        "nan": lambda: message(DataKind.WEIGHTS, {n: t * math.nan for n, t in after().items()}),
        "another model": lambda: message(DataKind.WEIGHTS, {"fc": torch.zeros(2)}),
        "another kind": lambda: message(DataKind.APP_DEFINED, after()),
        "no weights kept": lambda: message(DataKind.WEIGHTS, after()),
    }[fault]()
    withheld = audit.process(result, fl_ctx).get_return_code(ReturnCode.OK) != ReturnCode.OK
    assert withheld is strict


def test_metrics_and_failures_pass() -> None:
    audit = LeakAudit(limit=0.5, strict=True)
    metrics = DXO(DataKind.METRICS, data={"accuracy": 0.5}).to_shareable()
    assert audit.process(metrics, context()) is metrics
    failure = make_reply(ReturnCode.EXECUTION_EXCEPTION)
    assert audit.process(failure, context()) is failure


def test_wrong_settings_are_refused_when_the_filter_is_built() -> None:
    with pytest.raises(InputError, match="limit must be of type float"):
        LeakAudit(limit="high")  # type: ignore[arg-type]


def server_side(folder: Path, results: dict[str, Shareable]) -> dict[str, str]:
    """Return codes by client."""
    log = AuditLog(folder=str(folder), leak_log=str(folder / "log"), model="tiny", defence="none")
    manager = FLContextManager(identity_name="server", job_id="job", public_stickers={}, private_stickers={})
    log.handle_event(EventType.START_RUN, manager.new_context())
    KeepWeights().process(message(DataKind.WEIGHTS, before()), manager.new_context())
    codes = {}
    for client, result in results.items():
        fl_ctx = manager.new_context()
        peer = FLContext()
        peer.set_prop(ReservedKey.IDENTITY_NAME, client, private=False, sticky=False)
        fl_ctx.set_peer_context(peer)
        codes[client] = log.process(result, fl_ctx).get_return_code(ReturnCode.OK)
    return codes


def test_the_server_logs_audits_and_keeps_faults_out(tmp_path: Path) -> None:
    nan = {name: tensor * math.nan for name, tensor in after().items()}
    public = {"lr": LR, "batch": 1, "size": (32, 32)}
    audited = leave(DataKind.WEIGHTS, after())
    from_shareable(audited).get_meta_props()["mjp"].update(public)
    results = {
        "site-1": audited,
        "site-2": message(DataKind.WEIGHTS, nan),
        "site-3": message(DataKind.WEIGHTS, {"fc": torch.zeros(2)}),
        "site-4": make_reply(ReturnCode.TASK_RESULT_FILTER_ERROR),
        "site-5": Shareable(),
        "site-6": message(DataKind.WEIGHT_DIFF, difference(), **{MetaKey.INITIAL_METRICS: {"accuracy": 0.25}}),
    }
    codes = server_side(tmp_path, results)
    assert [codes[f"site-{k}"] == ReturnCode.OK for k in range(1, 7)] == [True, False, False, False, False, True]
    journal = Journal.open(tmp_path / "server")
    assert [entry.status for entry in journal.entries] == ["exposed"] + 5 * ["unknown"]
    assert journal.accuracy == {0: 0.25}
    assert (tmp_path / "log" / "round-0001" / "client-site-1.safetensors").is_file()
    finish_run(tmp_path, rounds=1)
    assert read_results(tmp_path).body["scenarios"]["none"]["faults"] == 4


def test_a_site_enforces_it_by_its_privacy_policy(tmp_path: Path) -> None:
    """privacy.json is read by NVFlare's own reader, and its filters run before those of the job."""
    from nvflare.apis.fl_constant import FilterKey
    from nvflare.apis.utils.task_utils import apply_filters
    from nvflare.apis.workspace import Workspace
    from nvflare.private.fed.app.fl_conf import PrivacyConfiger

    (tmp_path / "startup").mkdir()
    (tmp_path / "local").mkdir()
    policy = Path(__file__).parents[2] / "examples" / "nvflare" / "privacy.json"
    (tmp_path / "local" / "privacy.json").write_text(policy.read_text())
    configer = PrivacyConfiger(Workspace(str(tmp_path)), names_only=False, is_server=False)
    configer.configure()
    scope = configer.privacy_manager.get_scope(None)
    fl_ctx = context()
    fl_ctx.set_prop(FLContextKey.SCOPE_OBJECT, scope, private=True, sticky=False)
    apply_filters("task_data_filters", message(DataKind.WEIGHTS, before()), fl_ctx, {}, "train", FilterKey.IN)
    leaving = message(DataKind.WEIGHTS, after(), mjp={"lr": LR, "batch": 1})
    result = apply_filters("task_result_filters", leaving, fl_ctx, {}, "train", FilterKey.OUT)
    assert result.get_return_code() == ReturnCode.TASK_RESULT_FILTER_ERROR
    assert json.loads(policy.read_text())["default_scope"]


def test_a_job_can_write_the_filters_down_and_build_them_again() -> None:
    """NVFlare writes a job's config from attributes that are named like the arguments."""
    import inspect

    for component in (LeakAudit(limit=0.5, attacks="direct"), AuditLog(folder="out/x", defence="mjp:0.5")):
        names = [name for name in inspect.signature(type(component).__init__).parameters if name != "self"]
        given = {name: getattr(component, name) for name in names}
        again = type(component)(**given)
        assert {name: getattr(again, name) for name in names} == given


def test_a_round_without_a_single_update_is_a_failed_run(tmp_path: Path) -> None:
    server_side(tmp_path, {f"site-{k}": make_reply(ReturnCode.TASK_RESULT_FILTER_ERROR) for k in (1, 2)})
    with pytest.raises(InputError, match="in round 1 no client sent an update"):
        finish_run(tmp_path)
    assert not (tmp_path / "results.json").exists()


def test_small_differences_in_half_precision_are_exposed() -> None:
    """What leaves is the difference, with all its digits, not its sum with the weights."""
    changes = {name: (1e-3 * tensor).half() for name, tensor in difference().items()}
    for settings in ({}, {"limit": 0.97}):
        result = leave(DataKind.WEIGHT_DIFF, changes, **settings)
        withheld = result.get_return_code() != ReturnCode.OK
        assert withheld or from_shareable(result).get_meta_prop(FIGURES)["leak_exposed"] == 1
        assert withheld is bool(settings)


def smuggle(how: str) -> Shareable:
    if how == "behind an error":
        shareable = message(DataKind.WEIGHTS, after())
        shareable.set_return_code(ReturnCode.EXECUTION_EXCEPTION)
    elif how == "as metrics":
        shareable = message(DataKind.METRICS, after())
    elif how == "in the meta":
        shareable = message(DataKind.WEIGHTS, after(8), mjp={"lr": LR, "batch": 8}, extra=after()["model.pos_embed"])
        from_shareable(shareable).get_meta_props()["extra"] = {n: t.numpy() for n, t in after().items()}
    else:
        shareable = message(DataKind.WEIGHTS, after(8), mjp={"lr": LR, "batch": 8})
        shareable.set_header("note", after()["model.patch_embed.proj.weight"].numpy().tobytes())
    return shareable


@pytest.mark.parametrize("how", ["behind an error", "as metrics", "in the meta", "in a header"])
def test_a_strict_site_lets_no_weights_out_by_another_way(how: str) -> None:
    fl_ctx = context()
    KeepWeights().process(message(DataKind.WEIGHTS, before()), fl_ctx)
    result = LeakAudit(limit=0.97, strict=True).process(smuggle(how), fl_ctx)
    assert result.get_return_code() != ReturnCode.OK
    assert "DXO" not in result
    assert amount(dict(result)) < 1000


def test_what_the_job_claims_does_not_get_a_picture_past_the_site() -> None:
    fl_ctx = context()
    KeepWeights().process(message(DataKind.WEIGHTS, before()), fl_ctx)
    claim = {"lr": 1e-7, "batch": 64, "steps": 50}
    result = LeakAudit(limit=0.97, strict=True).process(message(DataKind.WEIGHTS, after(), mjp=claim), fl_ctx)
    assert result.get_return_code() == ReturnCode.TASK_RESULT_FILTER_ERROR


def server(folder: Path) -> tuple[AuditLog, FLContextManager]:
    manager = FLContextManager(identity_name="server", job_id="job", public_stickers={}, private_stickers={})
    return AuditLog(folder=str(folder), leak_log=str(folder / "log")), manager


def of_peer(manager: FLContextManager, name: str) -> FLContext:
    fl_ctx = manager.new_context()
    peer = FLContext()
    peer.set_prop(ReservedKey.IDENTITY_NAME, name, private=False, sticky=False)
    fl_ctx.set_peer_context(peer)
    return fl_ctx


@pytest.mark.parametrize("kinds", [(DataKind.WEIGHTS, DataKind.WEIGHT_DIFF), (DataKind.WEIGHT_DIFF, DataKind.WEIGHTS)])
def test_weights_and_differences_are_not_averaged_as_if_they_were_the_same(
    kinds: tuple[str, str], tmp_path: Path
) -> None:
    """FedAvg takes the kind of the first result for that of all."""
    log, manager = server(tmp_path)
    KeepWeights().process(message(DataKind.WEIGHTS, before()), manager.new_context())
    results = []
    for number, kind in enumerate(kinds):
        update = after() if kind == DataKind.WEIGHTS else difference()
        results.append(from_shareable(log.process(message(kind, update), of_peer(manager, f"site-{number}"))))
    assert [dxo.data_kind for dxo in results] == [kinds[0], kinds[0]]
    for name, value in results[0].data.items():
        assert abs(results[1].data[name] - value).max() < 1e-6
    stated = [json.loads((tmp_path / f"log/round-0001/client-site-{k}.json").read_text())["kind"] for k in (0, 1)]
    assert stated == ["fedavg" if kind == DataKind.WEIGHTS else "delta" for kind in kinds]


def test_a_site_that_does_not_answer_is_named(tmp_path: Path) -> None:
    log, manager = server(tmp_path)
    for name in ("site-1", "site-2"):
        KeepWeights().process(message(DataKind.WEIGHTS, before()), of_peer(manager, name))
    log.process(message(DataKind.WEIGHTS, after()), of_peer(manager, "site-1"))
    log.handle_event(AppEventType.BEFORE_AGGREGATION, manager.new_context())
    assert {entry.client: entry.fault for entry in log.journal.entries} == {"site-1": "", "site-2": "no answer"}


def test_without_the_weights_that_went_out_nan_is_kept_out_all_the_same(tmp_path: Path) -> None:
    log, manager = server(tmp_path)
    nan = {name: tensor * math.nan for name, tensor in after().items()}
    result = log.process(message(DataKind.WEIGHTS, nan), of_peer(manager, "site-1"))
    assert result.get_return_code() == ReturnCode.EXECUTION_RESULT_ERROR


def test_a_round_of_the_recipe_ends(tmp_path: Path) -> None:
    """NVFlare's own controller waits for ever for a site that hangs; the job's config must say otherwise."""
    (tmp_path / "client.py").write_text("")
    recipe = TolerantFedAvgRecipe(
        min_clients=2,
        num_rounds=3,
        task_timeout=7,
        model={"class_path": "torch.nn.Linear", "args": {"in_features": 1, "out_features": 1}},
        train_script=str(tmp_path / "client.py"),
    )
    recipe.export(str(tmp_path / "job"))
    (config,) = tmp_path.glob("job/**/config_fed_server.json")
    (workflow,) = json.loads(config.read_text())["workflows"]
    assert workflow["path"] == "mjp.federated.nvflare.recipe.TimedFedAvg"
    assert (workflow["args"]["task_timeout"], workflow["args"]["ignore_result_error"]) == (7, True)
    assert (workflow["args"]["num_clients"], workflow["args"]["num_rounds"]) == (2, 3)


@pytest.mark.parametrize("as_tensors", [True, False])
def test_half_precision_of_one_site_does_not_become_that_of_all(as_tensors: bool, tmp_path: Path) -> None:
    log, manager = server(tmp_path)
    KeepWeights().process(message(DataKind.WEIGHTS, before()), manager.new_context())
    half = {name: tensor.half() for name, tensor in after().items()}
    data = half if as_tensors else {name: tensor.numpy() for name, tensor in half.items()}
    result = log.process(DXO(DataKind.WEIGHTS, data=dict(data)).to_shareable(), of_peer(manager, "site-1"))
    assert {str(value.dtype).removeprefix("torch.") for value in from_shareable(result).data.values()} == {"float32"}


@pytest.mark.parametrize("metrics", [{"accuracy": math.nan}, {"accuracy": "high"}, {"loss": 1.0}, "none", 5])
def test_an_accuracy_that_is_nonsense_costs_neither_the_update_nor_the_journal(metrics: Any, tmp_path: Path) -> None:
    meta = {MetaKey.INITIAL_METRICS: metrics}
    codes = server_side(tmp_path, {"site-1": message(DataKind.WEIGHTS, after(), **meta)})
    assert codes == {"site-1": ReturnCode.OK}
    assert Journal.open(tmp_path / "server").accuracy == {}


def test_a_job_that_ended_early_is_a_failed_run(tmp_path: Path) -> None:
    """Also one that ended before its first result, for which an empty journal would pass."""
    server_side(tmp_path, {"site-1": message(DataKind.WEIGHTS, after())})
    finish_run(tmp_path, rounds=1)
    with pytest.raises(InputError, match="its journal ends after 1 of 3 rounds"):
        finish_run(tmp_path, rounds=3)
    server_side(tmp_path, {})
    with pytest.raises(InputError, match="its journal ends after 0 of 1 rounds"):
        finish_run(tmp_path)
