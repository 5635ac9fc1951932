"""What a site runs: receive the global model, train on its own pictures, send the weights back.

The audit is not here: it is a filter of the site, which sees what leaves after this script is done.
"""

import argparse
from pathlib import Path

import nvflare.client as flare
import torch

from mjp.common.key_path import default_path
from mjp.common.secret_key import SecretKey
from mjp.federated.client import LocalClient
from mjp.federated.data import accuracy_of, client_share, validation_pictures
from mjp.models import find_model
from mjp.privacy.combination import parse


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="mini-cifar10-mjp")
    parser.add_argument("--defence", default="mjp:0.27")
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--accuracy", type=int, default=100)
    parser.add_argument("--keys", default="", help="folder for the secret keys of simulated sites")
    options = parser.parse_args()

    flare.init()
    number = int(flare.get_site_name().split("-")[-1]) - 1
    subject = find_model(options.model, random_weights=0)
    batch = parse(options.defence).batch
    share = client_share(number, options.clients, subject.size, alpha=0.5, least=batch, most=64 * batch, seed=0)
    keys = Path(options.keys) if options.keys else default_path().parent
    key = SecretKey.open(keys / f"client-{number}.key")
    client = LocalClient(subject, *share, defence=options.defence, lr=options.lr, key=key)
    pictures = validation_pictures(options.accuracy, subject.size)

    while flare.is_running():
        received = flare.receive()
        weights = {name: torch.as_tensor(value) for name, value in received.params.items()}
        metrics = {"accuracy": accuracy_of(client.network, weights, subject, pictures)}
        sent = client.train(weights, received.current_round + 1)
        meta = {"mjp": {**sent.info, "size": list(subject.size), "mean": list(subject.mean), "std": list(subject.std)}}
        flare.send(flare.FLModel(params=sent.weights, params_type="FULL", metrics=metrics, meta=meta))


if __name__ == "__main__":
    main()
