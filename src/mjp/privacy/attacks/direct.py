"""Direct closed form on the unmodified ViT.

    For one picture ∂L/∂W = Gᵀ X with G = ∂L/∂E, so X = (Gᵀ)⁺ ∂L/∂W whenever rank G = N ≤ D.

Any loss, any depth, no property of the network but "token = W x + b + E". D equations for N unknowns per pixel: what
the excess of D − N equations cannot explain is noise, and its size decides how far the solution leans on the prior.
"""

import torch

from mjp.privacy.linear import calm, solve_mixed
from mjp.privacy.view import Reconstruction, Refused, View

NAME, TITLE = "direct", "direct closed form"


def run(view: View) -> Reconstruction:
    view.require("projection", "positions")
    mixing, mixed = view.positions, view.projection  # (N, D), (D, P)
    cells, width = mixing.shape
    if cells > width:
        raise Refused(f"{cells} patches and only {width} equations for each pixel: the system has no unique solution")
    values, basis = torch.linalg.svd(mixing, full_matrices=False)[1:]  # basis (N, D): orthonormal rows
    excess = mixed - basis.T @ (basis @ mixed)
    scale = float(mixed.square().mean().sqrt())
    measured = float(excess.square().sum() / (max(width - cells, 1) * mixed.shape[1])) ** 0.5 / scale
    noise = max(measured, view.resolution / 100)  # relative to the scale
    found, noise = calm(view, lambda deviation: solve_mixed(view, mixing, mixed, deviation * scale), noise)
    condition = float(values[0] / values[-1].clamp(min=1e-300))
    return view.reconstruction(found, condition=condition, noise=noise)
