"""Direct closed form on the unmodified ViT.

    For one picture ∂L/∂W = Gᵀ X with G = ∂L/∂E, so X = (Gᵀ)⁺ ∂L/∂W whenever rank G = N ≤ D.

Any loss and any depth: the only property used is "token = W x + b + E". There are D equations for N unknowns per pixel:
what the D − N surplus equations leave unexplained is noise, and its size decides how far the solution leans on the
prior. Where N ≥ D (LayerNorm takes one dimension away) the prior also fills the directions that are open. The same
holds for the sum of FedAvg's local steps, since every step has the same X. An update of several pictures gives one
mixture of them, with the other pictures as noise.
"""

import torch
from torch import Tensor

from mjp.privacy.server.linear import noise_of, solve_mixed, solve_until_plausible
from mjp.privacy.server.needs import require
from mjp.privacy.server.view import Reconstruction, Refused, View

NAME = "direct"
TITLE = "direct closed form"
HELP = "solves a linear system for all pixels; needs the gradient of the position table"
NEEDS = ("projection", "positions")
MAX_BATCH = 64


def run(view: View) -> Reconstruction:
    require(view, *NEEDS)
    if view.info.batch > MAX_BATCH:
        raise Refused(f"the update is of {view.info.batch} pictures: beyond {MAX_BATCH} they cannot be told apart")
    mixing, mixed = view.positions, view.projection  # (N, D), (D, P)
    if len(mixing) >= len(mixed) and bool(view.mask.any()):
        raise Refused(
            f"{len(mixing)} patches, {int(view.mask.sum())} of them masked, and only {len(mixed)} equations for each "
            "pixel: none is left over to tell what the masked ones add; lattice can for pictures of 8 bits"
        )
    noise = noise_of(view, mixing, mixed)
    scale = float(mixed.square().mean().sqrt())
    measured = float(noise.square().mean().sqrt()) / scale
    # noise that is the same in all modes is on the numbers, so G has its share of it
    white = float(noise.min()) / scale * float(mixing.square().mean().sqrt())

    def solve(level: float) -> Tensor:
        return solve_mixed(view, mixing, mixed, noise, white, level / measured)

    patches, accepted = solve_until_plausible(view, solve, measured)
    values = torch.linalg.svdvals(mixing)
    condition = float(values[0] / values[-1].clamp(min=1e-300))
    return view.reconstruction(patches, condition=condition, noise=accepted)
