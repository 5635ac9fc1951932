"""What defences cost in accuracy: the same federated training under each of them.

    python tools/measure_defence_costs.py [DEFENCE ...]

Two clients share the embedded training pictures. Both start from the shipped MJP model with its classifier set to zero
and take the same number of SGD steps on 16 pictures each; what they send is averaged after every step, or after every K
steps under fedavg:K. Gradients have norms of about 10 here: where a defence clips them to norm 1, the learning rate is
ten times as high. Top-1 on the embedded validation pictures, without a jigsaw.
"""

import sys
from statistics import mean

import torch

import mjp  # noqa: F401 (before timm)
from mjp.common.secret_key import SecretKey
from mjp.common.seeds import derive_seed
from mjp.federated.client import LocalClient
from mjp.federated.data import Labelled, accuracy_of, load_pictures, private_pictures, validation_pictures
from mjp.federated.simulation import average
from mjp.models import Subject, find_model
from mjp.privacy.combination import parse

MODEL = "mini-cifar10-mjp"
DEFENCES = (
    *("none", "bf16", "prune:0.9", "frozen-pe", "fedavg:4", "noise:0.1", "mjp:0.27", "mjp:0.5", "mjp:0.9", "mjp:1"),
    *("mjp-sticky:0.27+dither", "mjp:0.27+fedavg:4", "dp:0.1", "dp:1"),
)
CLIPPING = ("noise", "dp")
CLIENTS = 2
BATCH = 16
STEPS = 100
RATE = 0.01
SEEDS = (0, 1)


def main(defences: list[str]) -> None:
    subject = find_model(MODEL)
    validation = validation_pictures(1000, subject.size)
    for defence in defences:
        values = [100 * measure(subject, defence, seed, validation) for seed in SEEDS]
        listed = ", ".join(f"{value:.1f}" for value in values)
        print(f"{defence}: {mean(values):.1f} % ({listed})", flush=True)


def measure(subject: Subject, defence: str, seed: int, validation: Labelled) -> float:
    """Accuracy after the training."""
    clients = make_clients(subject, defence, seed)
    network = clients[0].network
    weights = {name: tensor.detach().clone() for name, tensor in network.weights().items()}
    for name in weights:
        if name.startswith("model.head."):
            weights[name] = torch.zeros_like(weights[name])
    for number in range(1, STEPS // clients[0].steps + 1):
        sent = [client.train(weights, number).weights for client in clients]
        weights = average(sent, [1] * len(sent))
    return accuracy_of(network, weights, subject, validation)


def make_clients(subject: Subject, defence: str, seed: int) -> list[LocalClient]:
    clips = any(part.defence.name in CLIPPING for part in parse(defence).parts)
    text = f"batch:{BATCH}" if defence == "none" else f"{defence}+batch:{BATCH}"
    source = private_pictures()
    order = torch.randperm(len(source), generator=torch.Generator().manual_seed(seed)).tolist()
    shares = [load_pictures(source, order[k::CLIENTS], subject.size) for k in range(CLIENTS)]
    return [
        LocalClient(
            subject,
            *share,
            defence=text,
            lr=10 * RATE if clips else RATE,
            key=SecretKey.simulated(derive_seed(seed, k)),
        )
        for k, share in enumerate(shares)
    ]


if __name__ == "__main__":
    main(sys.argv[1:] or list(DEFENCES))
