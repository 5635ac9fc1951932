"""What a bound on every attack costs: a classifier trained with differential privacy on a frozen, public backbone.

    python tools/measure_private_head.py DATA WEIGHTS CACHE [PIXELS]

DATA has train/CLASS/* and val/CLASS/*; WEIGHTS are DeiT-Ti's, trained on other pictures; CACHE is a folder for its
features, at PIXELS (128). Every picture takes part in each of 100 rounds with a vector of norm at most 1: in the first
with its features, whose mean is subtracted afterwards, in the others with its clipped gradient. The server gets the sum
with Gaussian noise, as from secure aggregation. A tenth of the training pictures chooses the learning rate of every σ,
also of the training without clipping and noise; then all of them train, and val is measured.
"""

import math
import sys
from pathlib import Path
from statistics import NormalDist, mean, stdev
from typing import NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize, one_hot

import mjp  # noqa: F401 (before timm)
from mjp.common.progress import track
from mjp.common.weights import read_tensors
from mjp.models import find_model
from mjp.pictures.crop import eight_bit_square
from mjp.pictures.sets import Folder
from mjp.pictures.tensors import normalise
from mjp.privacy.samples import sample_pictures
from mjp.privacy.server.bound import bound_gain, decibels, least_error, most_nats, right_choice
from mjp.privacy.server.prior import fit_prior

BACKBONE = "timm:deit_tiny_patch16_224"
BATCH = 50
ROUNDS = 100
SIGMAS = (0.0, 5.0, 10.0, 21.0, 45.0)  # 0: neither noise nor clipping
RATES = (30.0, 100.0, 300.0, 1000.0)
MOMENTUM = 0.9
SEEDS = range(5)
DEV_SEED = 100
WIDTHS = {"class token": 192, "class token and mean of the patches": 384}
DELTA = 1e-5
PRIOR = 2000  # pictures on which the attacker's prior is measured

Labelled = tuple[Tensor, Tensor]  # features (n, d), labels (n,)


def main(data: Path, weights: Path, cache: Path, pixels: int) -> None:
    train, test = (features(data / split, weights, cache, pixels) for split in ("train", "val"))
    pictures = sample_pictures(Folder(data / "train"), PRIOR, native_size(data))
    print(f"{len(train[1])} pictures in each of {ROUNDS} rounds, {len(test[1])} of val")
    for sigma in SIGMAS[1:]:
        print(f"σ {sigma:g}: {bounds(pictures, sigma)}", flush=True)
    for name, width in WIDTHS.items():
        print(name, flush=True)
        compare(*((inputs[:, :width], labels) for inputs, labels in (train, test)))


def compare(train: Labelled, test: Labelled) -> None:
    """Print the accuracy at every σ, and that of a head without a limit of rounds."""
    chosen = torch.arange(len(train[1])) % 10 == 0
    rest, dev = ((train[0][rows], train[1][rows]) for rows in (~chosen, chosen))
    plain = 0.0
    for sigma in SIGMAS:
        rate = max(RATES, key=lambda rate: accuracy(trained(rest, sigma, rate, seed=DEV_SEED), dev))
        values = [100 * accuracy(trained(train, sigma, rate, seed=seed), test) for seed in SEEDS]
        plain = plain or mean(values)
        spread = f"{mean(values):.2f} ± {stdev(values):.2f} % ({min(values):.2f} to {max(values):.2f})"
        print(f"σ {sigma:g}, rate {rate:g}: {spread}, cost {plain - mean(values):.2f}", flush=True)
    print(f"L-BFGS without clipping and noise: {100 * accuracy(converged(train), test):.2f} %", flush=True)


def bounds(pictures: Tensor, sigma: float) -> str:
    """What no attack exceeds, for the Gaussian prior, for one with the covariance as measured, and for any prior."""
    prior = fit_prior(pictures)
    bound = bound_gain(prior, sigma, ROUNDS)
    rest = (pictures.double() - prior.mean).flatten(1)
    spectrum = torch.linalg.svdvals(rest).square() / len(rest)
    measured = decibels(float(spectrum.sum()), least_error(spectrum, bound.nats))
    return (
        f"ε {epsilon(sigma, ROUNDS):.2f} at δ {DELTA:g}, {bound.nats:.4f} nats, gain at most {bound.gaussian:.2f} dB "
        f"(prior), {measured:.2f} dB (measured covariance), {bound.any_prior:.2f} dB (any prior), "
        f"right one of ten {100 * right_choice(0.1, sigma, ROUNDS):.1f} %"
    )


def native_size(data: Path) -> tuple[int, int]:
    width, height = Folder(data / "train").load(0).size
    return height, width


@torch.no_grad()
def features(folder: Path, weights: Path, cache: Path, pixels: int) -> Labelled:
    """The class token and the mean of the patches of every picture; computed once."""
    path = cache / f"{folder.parent.name}-{folder.name}-{pixels}.safetensors"
    if not path.exists():
        subject = find_model(BACKBONE, weights=read_tensors(weights))
        model = subject.model.model.float().eval()
        model.set_input_size(img_size=pixels)
        pictures = Folder(folder)
        parts = []
        for start in track(range(0, len(pictures), BATCH), f"features of {folder}"):
            numbers = range(start, min(start + BATCH, len(pictures)))
            images = torch.stack([eight_bit_square(pictures.load(number), (pixels, pixels)) for number in numbers])
            tokens = model.forward_features(normalise(images, subject.mean, subject.std))
            parts.append(torch.cat([tokens[:, 0], tokens[:, 1:].mean(1)], 1))
        cache.mkdir(parents=True, exist_ok=True)
        save_file({"features": torch.cat(parts), "labels": torch.tensor(pictures.labels)}, path)
    stored = load_file(path)
    return stored["features"], stored["labels"]


class Head(NamedTuple):
    mean: Tensor  # (d,) subtracted from features of length 1
    weights: Tensor  # (classes, d)

    def inputs(self, features: Tensor) -> Tensor:
        return normalize(normalize(features, dim=1) - self.mean, dim=1)


def trained(train: Labelled, sigma: float, rate: float, *, seed: int) -> Head:
    """A round for the mean, then gradient descent with momentum, from zero."""
    generator = torch.Generator().manual_seed(seed)

    def aggregated(total: Tensor) -> Tensor:
        """What the server gets of a sum over all pictures, as a mean."""
        return (total + sigma * torch.randn(total.shape, generator=generator)) / len(train[1])

    targets = one_hot(train[1]).float()
    head = Head(aggregated(normalize(train[0], dim=1).sum(0)), torch.zeros(targets.shape[1], train[0].shape[1]))
    inputs = head.inputs(train[0])
    speed = torch.zeros_like(head.weights)
    for _ in range(ROUNDS - 1):
        errors = (inputs @ head.weights.T).softmax(1) - targets  # a picture's gradient: its error times its input
        gradient = aggregated((clipped(errors, inputs) if sigma else errors).T @ inputs)
        speed = MOMENTUM * speed + (1 - MOMENTUM) * gradient
        head = head._replace(weights=head.weights - rate * speed)
    return head


def clipped(errors: Tensor, inputs: Tensor) -> Tensor:
    """Errors scaled down so that no picture's gradient has a norm above 1."""
    norms = errors.norm(dim=1) * inputs.norm(dim=1)
    return errors / norms.clamp(min=1).unsqueeze(1)


def converged(train: Labelled) -> Head:
    """The head of least cross-entropy: what it could be without a limit of rounds."""
    start = trained(train, 0.0, 0.0, seed=0)
    inputs = start.inputs(train[0])
    weights = start.weights.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([weights], max_iter=300, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = cross_entropy(inputs @ weights.T, train[1])
        loss.backward()
        return loss

    optimizer.step(closure)
    return start._replace(weights=weights.detach())


def accuracy(head: Head, test: Labelled) -> float:
    return float(((head.inputs(test[0]) @ head.weights.T).argmax(1) == test[1]).float().mean())


def epsilon(sigma: float, rounds: int) -> float:
    """ε of (ε, δ)-differential privacy, adding or removing one picture; exact for Gaussian noise (Balle, Wang 2018)."""
    shift = math.sqrt(2 * most_nats(sigma, rounds))
    low, high = 0.0, shift**2 / 2 + 20 * shift
    for _ in range(100):
        middle = (low + high) / 2
        a, b = (NormalDist().cdf(sign * shift / 2 - middle / shift) for sign in (1, -1))
        low, high = (middle, high) if a - math.exp(middle) * b > DELTA else (low, middle)
    return high


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]), int(sys.argv[4]) if len(sys.argv) > 4 else 128)
