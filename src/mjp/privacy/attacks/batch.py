"""Batch attack: a closed form for several pictures in one update, with B·N < D. Pictures of 8 bits, one step.

Linear equations leave every patch open along the differences between the pictures; in grey levels that is a lattice,
and the first LayerNorm tells which of its points are patches of the client (server/batch.py). Points of one place are
told apart, not whose they are: borders put them together, and then the update itself, which only the right pictures
explain (server/assembly.py). Places whose points are not found show the most probable patch given their neighbours.

It ends where the differences fill the tokens (B·N ≥ D), where there are too many for lattice reduction, and where the
pictures hardly differ: then many integer points are as probable as the true ones.
"""

from collections.abc import Iterable
from itertools import permutations

import torch
from torch import Tensor

from mjp.pictures.patches import patchify, unpatchify
from mjp.privacy.attacks.lattice import check_installed
from mjp.privacy.server.assembly import Assembly, refine
from mjp.privacy.server.batch import (
    MAX_EXCESS,
    Activations,
    Coset,
    NormalisedTokens,
    candidates,
    find_coset,
    kronecker,
    open_system,
)
from mjp.privacy.server.linear import PatchModes, precision, solve_open
from mjp.privacy.server.needs import require
from mjp.privacy.server.self_check import CONVINCING, match, recover_labels
from mjp.privacy.server.view import Reconstruction, Refused, View

NAME = "batch"
TITLE = "several pictures, closed form with integer pixels"
HELP = "several pictures in one update: differences are a lattice, the first LayerNorm picks its points"
NEEDS = ("several", "step", "projection", "positions")
PASSES = 4  # of the search for points, each given the neighbours that the last one found
MAX_SHARE = 0.5  # of the possible points that pass a check that tells them apart
MAX_SPARE = 8  # points of a place that are tried beyond the most probable ones
MAX_ORDERS = 4  # pictures of which every order of the labels is tried


def run(view: View) -> Reconstruction:
    require(view, *NEEDS)
    check_installed()
    if bool(view.unknown.any()):
        raise Refused("some patches share E_unk, but it reads the sum of the gradients of all patches of a place")
    system = open_system(view)
    start = solve_open(view, system.origin, system.free)
    details = {"condition": system.condition}
    coset = find_coset(view, system, to_levels(view, system.origin), to_levels(view, start))
    if coset is None:
        pictures = view.picture(start).clamp(0, 1).expand(view.info.batch, -1, -1, -1)
        details |= {"open_dimensions": len(system.free), "noise": float(system.noise.median())}
        return Reconstruction(pictures, {**details, "integer_patches": 0})
    search = Search(view, coset, to_levels(view, start))
    levels = _in_order_of_labels(view, search.run())
    pictures = torch.stack([view.picture(to_patches(view, one)) for one in levels]).clamp(0, 1)
    certain = search.certain
    if certain == 0 and _convincing(view, pictures):  # every possible point passed the check: the update decides
        certain = int((levels == levels.round()).all(2).sum())
    return Reconstruction(pictures, {**details, "integer_patches": certain})


def _convincing(view: View, pictures: Tensor) -> bool:
    try:
        return match(view, pictures) > CONVINCING
    except Refused:
        return False


class Search:
    """Which points of the cosets are patches, and of which picture."""

    def __init__(self, view: View, coset: Coset, answer: Tensor) -> None:
        self.view = view
        self.coset = coset
        self.answer = answer  # (N, P) levels
        self.check = NormalisedTokens(view)
        self.activations = Activations(view)
        self.modes = PatchModes(view)
        self.alone = kronecker(tuple(map(torch.linalg.inv, view.prior.patch_covariances(view.patch)))) / 255**2
        self.given = kronecker(view.prior.patch_factors(view.patch)) / 255**2
        self.decisive = False  # whether the check tells points apart
        self.points = [answer[:0] for _ in answer]  # that pass all checks, of every place; the most probable first

    @property
    def certain(self) -> int:
        """Points of places that have no more of them than there are pictures: of more, some are wrong."""
        if not self.decisive:
            return 0
        return sum(len(points) for points in self.points if len(points) <= self.view.info.batch)

    def run(self) -> Tensor:
        """(B, N, P) pictures in levels."""
        self._look(self.alone, self.answer)
        pictures = self._assembled()
        for _ in range(PASSES):
            before = self._count()
            for picture in pictures:
                self._look(self.given, self._expected(picture))
            if before == self._count():
                break
            pictures = self._assembled()
        return pictures

    def _count(self) -> int:
        return sum(map(len, self.points))

    def _look(self, metric: Tensor, target: Tensor) -> None:
        """Look for more points near (N, P) targets, in the places where some are missing."""
        counts = torch.tensor([len(points) for points in self.points])
        places = (counts < self.view.info.batch).nonzero()[:, 0]
        if len(places) == 0:
            return
        points = candidates(self.coset._replace(points=self.coset.points[places]), metric, target[places])
        excess = self.check.excess(_normalised(self.view, points), places)
        possible = (points >= 0).all(2) & (points <= 255).all(2)
        passed = possible & (excess < MAX_EXCESS)
        self.decisive |= int(passed.sum()) < MAX_SHARE * int(possible.sum())
        for number, cell in enumerate(places.tolist()):
            every = torch.cat([self.points[cell], points[number, passed[number]]]).unique(dim=0)
            rest = every - self.answer[cell]
            self.points[cell] = every[((rest @ self.alone) * rest).sum(1).argsort()]

    def _assembled(self) -> Tensor:
        """(B, N, P): put together by borders, then by the update; places without points show the answer."""
        batch = self.view.info.batch
        filled = [
            torch.cat([points[:batch], answer.expand(max(batch - len(points), 0), -1)])
            for points, answer in zip(self.points, self.answer, strict=True)
        ]
        assembly = Assembly(torch.stack(filled), self.view.grid, self.view.patch)
        spare = [points[batch : batch + MAX_SPARE] for points in self.points]
        return refine(assembly.pictures, assembly.groups, spare, self._score)

    def _score(self, levels: Tensor) -> float:
        """How well (B, N, P) pictures explain the update."""
        if self.activations.usable:
            return self.activations.score(_normalised(self.view, levels))
        return 0.0

    def _expected(self, levels: Tensor) -> Tensor:
        """(N, P) what the prior expects of every patch of a picture, given the others."""
        patches = to_patches(self.view, levels)
        pull = self.modes.to(precision(self.view, patches - self.view.patches(self.view.prior.mean)))
        return to_levels(self.view, patches - self.modes.back(pull / self.modes.values))


def _in_order_of_labels(view: View, levels: Tensor) -> Tensor:
    """The pictures in the order in which the labels of the update explain them best."""
    try:
        labels = recover_labels(view)
    except Refused:
        return levels
    if len(labels.unique()) == 1 or len(levels) > MAX_ORDERS:
        return levels

    def value(order: Iterable[int]) -> float:
        shown = torch.stack([view.picture(to_patches(view, levels[number])) for number in order])
        return match(view, shown.clamp(0, 1), labels)

    return levels[list(max(permutations(range(len(levels))), key=value))]


def to_levels(view: View, patches: Tensor) -> Tensor:
    """(N, P) normalised → grey levels, 0 … 255 for pictures."""
    return patchify(view.picture(patches), view.patch) * 255


def to_patches(view: View, levels: Tensor) -> Tensor:
    return view.patches(unpatchify(levels / 255, view.grid, view.patch))


def _normalised(view: View, levels: Tensor) -> Tensor:
    """(..., P) levels as the network gets them."""
    mean, std = (
        levels.new_tensor(numbers).repeat_interleave(view.patch[0] * view.patch[1])
        for numbers in (view.info.mean, view.info.std)
    )
    return (levels / 255 - mean) / std
