"""What the gradients of a trained model give away, in the paper's settings: (a) of the picture as it is, (b) of the
shuffled picture compared with the shuffled one, (c) compared with the original."""

from collections import defaultdict

from torch import Tensor

from mjp.models import Subject
from mjp.privacy import audit_pictures
from mjp.privacy.examine.finding import GUESS

RATIO = 0.27  # of the paper's settings b and c
ATTACKS = ("direct", "subspace")  # quick, and all linear: `activations` and `lattice` rebuild more under MJP


def measure_leakage(subject: Subject, pictures: Tensor) -> dict[str, float]:
    """PSNR in dB of the attack that is best on average, by setting, and of the guess that needs no gradient.

    `leak` is what a client of this model sends: (c) if the model hides positions, else (a).
    """
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))  # setting → attack → PSNR
    for finding in audit_pictures(subject, pictures, defences=["none", f"mjp:{RATIO}"], attacks=ATTACKS):
        for setting, scores in finding.scores.items():
            name = "guess" if finding.attack == GUESS else setting
            values[name][finding.attack] += [score.psnr for score in scores]
    best = {f"leak_{name}": max(sum(psnr) / len(psnr) for psnr in by.values()) for name, by in values.items()}
    return {**best, "leak": best["leak_c" if subject.model.hides_positions else "leak_a"]}
