"""Direct closed form on the unmodified ViT.

    For one picture ∂L/∂W = Gᵀ X with G = ∂L/∂E, so X = (Gᵀ)⁺ ∂L/∂W whenever rank G = N ≤ D.

Any loss, any depth, no property of the network but "token = W x + b + E". D equations for N unknowns per pixel: what
the excess of D − N equations cannot explain is noise, and its size decides how far the solution leans on the prior. It
holds for the sum of FedAvg's local steps as it does for one: every step has the same X. Several pictures give one, a
mixture of them, with the others as noise.
"""

import torch

from mjp.privacy.server.linear import calm, noise_of, solve_mixed
from mjp.privacy.server.view import Reconstruction, Refused, View

NAME, TITLE = "direct", "direct closed form"
MOST = 64  # pictures


def run(view: View) -> Reconstruction:
    view.require("projection", "positions")
    if view.facts.batch > MOST:
        raise Refused(f"the update is of {view.facts.batch} pictures: beyond {MOST} nothing of one can be told apart")
    mixing, mixed = view.positions, view.projection  # (N, D), (D, P)
    cells, width = mixing.shape
    if cells > width:
        raise Refused(f"{cells} patches and only {width} equations for each pixel: the system has no unique solution")
    noise = noise_of(view, mixing, mixed)
    scale = float(mixed.square().mean().sqrt())
    measured = float(noise.square().mean().sqrt()) / scale
    # what is alike in all modes is noise on the numbers, and G has its share of that
    white = float(noise.min()) / scale * float(mixing.square().mean().sqrt())
    found, taken = calm(view, lambda level: solve_mixed(view, mixing, mixed, noise, white, level / measured), measured)
    values = torch.linalg.svdvals(mixing)
    condition = float(values[0] / values[-1].clamp(min=1e-300))
    return view.reconstruction(found, condition=condition, noise=taken)
