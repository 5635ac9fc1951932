"""How much of a gain in any order is the order itself? Each answer is scored against its own picture and another one.

    python tools/check_any_order.py ATTACK PICTURES DEFENCE [DEFENCE ...]

The shipped MJP model and the pictures of `mjp audit`. The gain in any order reorders the patches of an answer in the
way that is best for it, which helps whatever has more variety than the guess: what an answer gains on a picture that
was not in its update is no leak.
"""

import sys
from statistics import mean

import torch
from torch import Tensor

import mjp  # noqa: F401 (before timm)
from mjp.pictures.sets import embedded
from mjp.privacy.attacks import Attack, find_attacks
from mjp.privacy.combination import Combination, parse
from mjp.privacy.examine.finding import GUESS
from mjp.privacy.examine.pictures import examine
from mjp.privacy.examine.subject import public_model
from mjp.privacy.metrics import best_permutation_psnr
from mjp.privacy.samples import sample_pictures, spread_numbers
from mjp.privacy.server.public_pictures import find_prior
from mjp.privacy.server.view import Effort, server_seed

MODEL = "mini-cifar10-mjp"
PATCH = 4
EFFORT = Effort(steps=200, restarts=0, objective="cosine", tv=1.0, edges=1.0, seed=server_seed(0))


def main(attack: str, count: int, defences: list[str]) -> None:
    source = embedded("val")
    pictures = sample_pictures(source, count, (32, 32))
    labels = torch.tensor([source.labels[number] for number in spread_numbers(len(source), count)])
    for text in defences:
        defence = parse(text)
        answers = [
            reconstruct(find_attacks((attack,)), pictures[part], labels[part], defence, seed)
            for seed, part in enumerate(torch.arange(count - count % defence.batch).split(defence.batch))
        ]
        guesses, found = (torch.cat(part) for part in zip(*answers, strict=True))
        own, other = (mean(gains(pictures, guesses, found.roll(shift * defence.batch, 0))) for shift in (0, 1))
        print(
            f"{attack} on {text}: in any order {own:+.2f} dB, on pictures of the next update {other:+.2f} dB",
            flush=True,
        )


def reconstruct(
    attacks: tuple[Attack, ...], pictures: Tensor, labels: Tensor, defence: Combination, seed: int
) -> tuple[Tensor, Tensor]:
    """The guess and the answer of the attack, (B, 3, H, W) each."""
    subject, prior = public_model(MODEL, seed=0), find_prior(None, (32, 32))
    findings = examine(subject, pictures, labels, defence, attacks=attacks, prior=prior, seed=seed, effort=EFFORT)
    results = {finding.attack: finding.pictures for finding in findings}
    guess, answer = results.pop(GUESS), results.popitem()[1]
    if guess is None or answer is None:
        sys.exit(f"the attack refuses {defence.text}")
    return guess, answer.expand_as(guess)


def gains(pictures: Tensor, guesses: Tensor, answers: Tensor) -> list[float]:
    """In dB over the guess, each with the order of patches that is best for it."""
    return [
        best_permutation_psnr(picture, answer.to(picture).clamp(0, 1), PATCH)
        - best_permutation_psnr(picture, guess.to(picture), PATCH)
        for picture, guess, answer in zip(pictures, guesses, answers, strict=False)
    ]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
