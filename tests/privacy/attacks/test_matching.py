"""Gradient matching: what it finds on a tiny network, in place or in any order, and what it does not believe."""

import pytest
import torch
from torch import Tensor

from clients import pictures, prior, send, tiny
from mjp.privacy.attacks import matching, matching_blind
from mjp.privacy.attacks.matching import patch_edges, total_variation
from mjp.privacy.metrics import best_permutation_psnr, psnr
from mjp.privacy.server.self_check import match
from mjp.privacy.server.view import Effort, Refused, View

SHORT = Effort(steps=30, restarts=0, lr=0.05)


def view(defence: str, effort: Effort = SHORT) -> View:
    network, update, _ = send(tiny(), defence)
    return View(update, network, prior(), effort)


def guess() -> Tensor:
    return prior().mean.clamp(0, 1)


@pytest.mark.parametrize("objective", ["cosine", "l2"])
def test_without_positions_the_patches_are_found_but_not_their_places(objective: str) -> None:
    there = view("no-pe", Effort(steps=50, restarts=0, lr=0.05, objective=objective))  # type: ignore[arg-type]
    found = matching_blind.run(there).pictures
    assert match(there, found) > match(there, guess().unsqueeze(0)) + 0.3
    gain = best_permutation_psnr(pictures()[0], found[0], 8) - best_permutation_psnr(pictures()[0], guess(), 8)
    assert gain > 1


def test_it_starts_from_the_closed_form_and_does_not_lose_it() -> None:
    found = matching.run(view("none", Effort(steps=3, restarts=0)))
    assert psnr(pictures()[0], found.pictures[0]).item() > 60
    assert found.details["starts"] == 2  # the closed form and the mean picture


def test_the_blind_one_knows_no_closed_form() -> None:
    found = matching_blind.run(view("none", Effort(steps=3, restarts=2)))
    assert psnr(pictures()[0], found.pictures[0]).item() < 25
    assert found.details["starts"] == 3


def test_an_answer_is_no_rougher_than_pictures_are() -> None:
    for defence in ("no-pe", "withheld-pe"):
        found = matching_blind.run(view(defence)).pictures[0]
        assert prior().oddity(found)[1] < 1.1 * prior().limits[1]  # clamping comes after smoothing


def test_several_pictures_keep_their_labels() -> None:
    there = view("batch:2", Effort(steps=2, restarts=0))
    found = matching.run(there)
    assert found.pictures.shape[0] == 2 == len(found.details["labels"])


def test_large_networks_and_batches_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Refused, match="9 pictures"):
        matching.run(view("batch:9"))
    monkeypatch.setattr(matching, "MAX_PARAMETERS", 1000)
    with pytest.raises(Refused, match="takes hours on a CPU"):
        matching.run(view("none"))


def test_priors_of_the_search_by_hand() -> None:
    """Two patches of 2×2 side by side, 0 and 1: one step of 1 in every row, across the border between them."""
    picture = torch.tensor([0.0, 0.0, 1.0, 1.0]).expand(1, 3, 2, 4)
    assert total_variation(picture).item() == pytest.approx(1 / 3)
    tall = torch.cat([picture, picture], 2)  # two more below, which go on without a step
    assert patch_edges(tall, (2, 2)).item() == pytest.approx(1.0)
