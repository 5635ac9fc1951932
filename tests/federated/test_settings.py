"""Settings from an engine's config: checked, and one auditor for each."""

import pytest

from mjp.common.errors import InputError
from mjp.federated.settings import AuditSettings, find_auditor, read_settings


def test_they_are_read_by_prefix_over_the_defaults() -> None:
    config = {"leak-audit.limit": 1, "leak-audit.attacks": "direct", "lr": 0.1}
    settings = read_settings(config, "leak-audit.", model="mini-cifar10-plain")
    assert settings == AuditSettings(model="mini-cifar10-plain", limit=1, attacks="direct")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [("limits", 1, "is not a setting"), ("limit", "high", "must be of type float"), ("strict", 1, "of type bool")],
)
def test_mistakes_are_named(key: str, value: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_settings({f"leak-audit.{key}": value}, "leak-audit.")


def test_model_and_prior_are_built_once() -> None:
    settings = AuditSettings(model="mini-cifar10-plain", attacks="direct")
    assert find_auditor(settings) is find_auditor(AuditSettings(model="mini-cifar10-plain", attacks="direct"))


def test_what_is_stated_comes_first_then_what_came_with_the_update() -> None:
    assert AuditSettings(batch=2).info({"batch": 8, "lr": 0.1}) == {"optimizer": "sgd", "batch": 2, "lr": 0.1}
