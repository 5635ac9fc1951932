"""Settings of an audit as engines carry them: flat keys with plain values, in a run's config or a job's."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from mjp.common.errors import InputError
from mjp.federated.auditor import ATTACKS, LeakAuditor


@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """What an engine's audit is told.

    Attributes:
        model: The shared model, as `mjp attack-update --model` takes it.
        defence: What the clients do, as `mjp attack --defences` writes it.
        attacks: Names of attacks, separated by commas.
        limit: Withhold updates above this match, and exposed ones; 1 withholds exposed ones alone, below 0 nothing.
        strict: With a limit, withhold also what cannot be audited.
        prior: Folder of public pictures; "" for the embedded ones.
        details: Folder on the client for what stays there: audit.jsonl and pictures; "" keeps nothing.
        batch: Distinct pictures in an update; 0: what comes with the update, else what the defence says.
        steps: Local steps of SGD; 0: what comes with the update, else 1.
        lr: Their learning rate; 0: what comes with the update.
        optimizer: Of the local steps; the attacks cover plain "sgd".
    """

    model: str = "mini-cifar10-mjp"
    defence: str = "none"
    attacks: str = ",".join(ATTACKS)
    limit: float = -1.0
    strict: bool = False
    prior: str = ""
    details: str = ""
    batch: int = 0
    steps: int = 0
    lr: float = 0.0
    optimizer: str = "sgd"

    def info(self, update: Mapping[str, Any]) -> dict[str, Any]:
        """What is public about an update: the settings first, then what came with the update."""
        stated: dict[str, Any] = {"optimizer": self.optimizer}
        for name in ("batch", "steps", "lr"):
            value = getattr(self, name) or update.get(name)
            if value:
                stated[name] = float(value) if name == "lr" else int(value)
        return stated


def read_settings(config: Mapping[str, Any], prefix: str, **defaults: Any) -> AuditSettings:
    """The settings under a prefix of an engine's config, over `defaults`; unknown names and types are refused."""
    stated = {key.removeprefix(prefix).replace("-", "_"): v for key, v in config.items() if key.startswith(prefix)}
    kinds = {field.name: type(getattr(AuditSettings(), field.name)) for field in fields(AuditSettings)}
    for name, value in stated.items():
        if name not in kinds:
            raise InputError(f"{prefix}{name} is not a setting of the audit: choose from {', '.join(kinds)}")
        number = kinds[name] is float and isinstance(value, int) and not isinstance(value, bool)
        if not isinstance(value, kinds[name]) and not number:
            raise InputError(f"{prefix}{name} must be of type {kinds[name].__name__}, not {type(value).__name__}")
    return AuditSettings(**{**defaults, **stated})


@lru_cache(maxsize=8)
def find_auditor(settings: AuditSettings) -> LeakAuditor:
    """The auditor with these settings, built once in a process: model and prior stay from round to round."""
    return LeakAuditor(
        settings.model,
        defence=settings.defence,
        attacks=[name.strip() for name in settings.attacks.split(",") if name.strip()],
        limit=None if settings.limit < 0 else settings.limit,
        strict=settings.strict,
        prior=Path(settings.prior) if settings.prior else None,
    )
