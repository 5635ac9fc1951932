"""Judge: compares reconstructions with the client's pictures. Only scoring sees the secret.

Settings, as published: (a) nothing is shuffled, a reconstruction is compared with the picture x; under a jigsaw
(b) with the shuffled picture x̃, and (c) with x itself. Several local steps have several jigsaws: then (c) alone.
"""

from dataclasses import replace

from torch import Tensor

from mjp.privacy.client.victim import Secret
from mjp.privacy.metrics import Perceptual, Score, match_batch, score


class Judge:
    def __init__(self, pictures: Tensor, secret: Secret, lpips: Perceptual | None) -> None:
        self.pictures = pictures.double()
        self.secret = secret
        self.lpips = lpips
        first = secret.plans[0]
        self.patch = pictures.shape[-2] // first.grid[0]
        self.targets = {"c" if first.budget else "a": self.pictures}
        if first.budget and len(secret.plans) == 1:
            self.targets = {"b": replace(secret, images=self.pictures).shuffled, **self.targets}

    def score(self, reconstruction: Tensor) -> dict[str, list[Score]]:
        """{setting: one Score per picture}; a single reconstruction of a batch is compared with every picture."""
        scores = {}
        for setting, targets in self.targets.items():
            single = reconstruction.shape[0] != len(targets)
            candidates = reconstruction[:1].expand_as(targets) if single else reconstruction
            order = match_batch(targets, candidates)
            scores[setting] = [
                score(target, candidates[k], patch=self.patch, mask=mask, lpips=self.lpips)
                for target, k, mask in zip(targets, order.tolist(), self.secret.mask, strict=True)
            ]
        return scores

    def arrange(self, reconstruction: Tensor) -> Tensor:
        """The reconstructions in the order of the pictures that they are scored against first."""
        target = next(iter(self.targets.values()))
        if reconstruction.shape != target.shape:
            return reconstruction
        return reconstruction[match_batch(target, reconstruction)]
