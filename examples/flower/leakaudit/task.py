"""The task: which model is trained, and which pictures a client has."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from mjp.common.key_path import default_path
from mjp.common.secret_key import SecretKey
from mjp.federated.client import LocalClient
from mjp.federated.data import client_share
from mjp.method.model import MJP
from mjp.models import Subject, find_model
from mjp.privacy.combination import parse
from mjp.privacy.network import shared_network


def shared_model(config: Mapping[str, Any]) -> tuple[Subject, MJP]:
    """The public model, and the network that clients train under the defence."""
    subject = find_model(str(config["leak-audit.model"]), random_weights=0)
    return subject, shared_network(subject.model, parse(str(config["leak-audit.defence"])))


@lru_cache(maxsize=16)
def local_client(number: int, clients: int, key_file: str, **config: Any) -> LocalClient:
    """A client, built once in a process. Its key is a file that stays on its machine."""
    subject, _ = shared_model(config)
    defence = str(config["leak-audit.defence"])
    batch = parse(defence).batch
    share = client_share(
        number, clients, subject.size, alpha=config["alpha"], least=batch, most=64 * batch, seed=config["seed"]
    )
    key = SecretKey.open(Path(key_file) if key_file else default_path().with_name(f"client-{number}.key"))
    return LocalClient(subject, *share, defence=defence, lr=config["lr"], key=key)
