"""What the audit of an update costs a client, relative to a local epoch of the shipped model, in processor time.

The epoch is one pass over a tenth of the embedded pictures in steps of 32, by the client code of `mjp federate`.

epoch_ms                 the local epoch
audit_plain_ms           audit of an update of one picture, which every attack can run on, without a defence
audit_mjp_ms             the same under mjp:0.27
audit_epoch_ms           audit of the epoch's own update
audit_limit_ms           the same with a limit, which also takes the update for one step on one picture
audit_epoch_percent      the dearest of these audits, relative to the epoch
"""

from functools import partial
from typing import Any

from mjp.bench.timing import minima, one_thread, processor_seconds
from mjp.common.secret_key import SecretKey
from mjp.federated.auditor import LeakAuditor
from mjp.federated.client import LocalClient, Sent
from mjp.federated.data import client_share
from mjp.models import find_model

REPEATS = 5
MODEL = "mini-cifar10-mjp"
CLIENTS, BATCH = 10, 32
LR = 0.001


def measure(repeats: int, _: int) -> dict[str, Any]:
    with one_thread():
        return _measure(repeats)


def _measure(repeats: int) -> dict[str, Any]:
    subject = find_model(MODEL)
    pictures = client_share(0, CLIENTS, subject.size, alpha=1e6, least=BATCH, most=1000, seed=0)
    steps = len(pictures[1]) // BATCH

    def client(defence: str) -> LocalClient:
        return LocalClient(subject, *pictures, defence=defence, lr=LR, key=SecretKey.simulated(0))

    def audit_of(one: LocalClient, sent: Sent, limit: float | None = None) -> Any:
        auditor = LeakAuditor(one.network, defence=one.defence.text, limit=limit)
        return partial(auditor.audit, weights[one.defence.text], sent.weights, sent.info)

    clients = {"plain": client("none"), "mjp": client("mjp:0.27"), "epoch": client(f"batch:{BATCH}+fedavg:{steps}")}
    weights = {one.defence.text: {n: t.clone() for n, t in one.network.weights().items()} for one in clients.values()}
    sent = {name: one.train(weights[one.defence.text], 1) for name, one in clients.items()}
    audits = {f"audit_{name}": audit_of(one, sent[name]) for name, one in clients.items()}
    epoch = clients["epoch"]
    audits["audit_limit"] = audit_of(epoch, sent["epoch"], limit=0.97)
    times = minima(
        repeats,
        clock=processor_seconds,
        epoch=lambda: epoch.train(weights[epoch.defence.text], 1),
        **audits,
    )
    figures = {f"{name}_ms": round(value, 1) for name, value in times.items()}
    dearest = max(value for name, value in times.items() if name != "epoch")
    share = round(100 * dearest / times["epoch"], 1)
    return {**figures, "audit_epoch_percent": share, "pictures": len(pictures[1]), "steps": steps, "repeats": repeats}


def lines(figures: dict[str, Any]) -> list[str]:
    audits = ", ".join(f"{name} {figures[f'audit_{name}_ms']:.0f} ms" for name in ("plain", "mjp", "epoch", "limit"))
    return [
        f"a local epoch of {figures['pictures']} pictures in {figures['steps']} steps: {figures['epoch_ms']:.0f} ms",
        f"the audit of an update: {audits}",
        f"the dearest audit is {figures['audit_epoch_percent']:.1f} % of the epoch",
    ]
