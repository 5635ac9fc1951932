"""What is said about a reconstruction of unknown pictures: never a false all-clear."""

from clients import send, tiny  # isort: skip  mjp before timm

from typing import Any

import pytest
import torch

from mjp.privacy import audit_update
from mjp.privacy.examine.finding import Finding
from mjp.privacy.examine.verdict import Evidence, give_verdict


def finding(**details: Any) -> Finding:
    return Finding("direct", torch.zeros(1, 3, 8, 8), seconds=0.1, details=details)


@pytest.mark.parametrize(
    ("match", "digits", "weights_known", "outcome", "words"),
    [
        (0.9995, 0, False, "explains", "a picture that explains the update (match"),
        (0.988, 0, True, "explains in part", "explains the update only in part"),
        (0.988, 6, True, "equations hold", "equations hold to 6 digits"),
        (0.01, 6, True, "equations hold", "which may not be the client's"),
        (0.01, 0, False, "unverified", "cannot be verified: the weights may not be the client's"),
        (0.01, 0, True, "not recovered", "not a reconstruction"),
        (None, 0, True, "unverified", "cannot be checked further"),
        (None, 6, True, "equations hold", "equations hold to 6 digits"),
    ],
)
def test_what_a_person_and_a_program_are_told(
    match: float | None, digits: int, weights_known: bool, outcome: str, words: str
) -> None:
    verdict = give_verdict(finding(match=match), Evidence(digits, weights_known, plausible=True))
    assert verdict.outcome == outcome
    assert words in verdict.sentence


def test_a_refusal_is_not_an_all_clear() -> None:
    refusal = Finding("direct", None, "the model has no E_unk")
    verdict = give_verdict(refusal, Evidence(0, True, plausible=False))
    assert verdict.outcome == "refused"
    assert verdict.sentence == "refuses: the model has no E_unk"


def test_an_odd_picture_is_not_called_none() -> None:
    """One of ten public pictures is odder than the prior's limits: that does not reassure anybody."""
    verdict = give_verdict(finding(match=0.01), Evidence(0, False, plausible=False))
    assert "look at it yourself" in verdict.sentence
    assert "not look" not in verdict.sentence


def test_what_was_guessed_is_told() -> None:
    wild = finding(match=0.9999, open_dimensions=18, range=(-2.0, 4.0))
    verdict = give_verdict(wild, Evidence(0, True, plausible=True))
    assert "18 dimensions of its patches are open" in verdict.sentence
    assert "--mean" not in verdict.sentence  # wild guesses say nothing about the normalisation
    assert "--mean" in give_verdict(finding(match=0.1, range=(-2.0, 4.0)), Evidence(0, True, plausible=True)).sentence


@pytest.mark.parametrize(("open_dimensions", "outcome"), [(16, "explains in part"), (48, "not recovered")])
def test_equations_that_leave_some_dimensions_open_are_not_an_all_clear(open_dimensions: int, outcome: str) -> None:
    """Every patch is known up to a few dimensions, although the guessed rest explains nothing."""
    partly = finding(match=0.6, open_dimensions=open_dimensions, patch_dimensions=48)
    assert give_verdict(partly, Evidence(5, True, plausible=True)).outcome == outcome


def test_an_update_of_masked_patches_is_exposed_without_lattice_reduction() -> None:
    network, update, _ = send(tiny(dtype=torch.float32), "mjp:0.27")
    findings = audit_update(network.state_dict(), update.tensors, update.info, network, attacks=["direct", "subspace"])
    assert findings.conclusion.verdict == "exposed"
    assert "subspace" in findings.conclusion.by


@pytest.mark.parametrize("defence", ["mjp:0.27+noise:1", "noise:1", "batch:4"])
def test_noise_and_company_are_not_called_exposed(defence: str) -> None:
    network, update, _ = send(tiny(dtype=torch.float32), defence)
    findings = audit_update(network.state_dict(), update.tensors, update.info, network, attacks=["direct", "subspace"])
    assert findings.conclusion.verdict == "not recovered by any attack that ran"


@pytest.mark.parametrize("match", [0.3, None])
def test_patches_in_whole_grey_levels_are_never_called_no_reconstruction(match: float | None) -> None:
    """Masked patches in wrong places leave a poor match, whatever the others show."""
    verdict = give_verdict(finding(match=match, integer_patches=191), Evidence(0, True, plausible=True))
    assert verdict.outcome == "explains in part"
    assert verdict.sentence.startswith("191 patches in whole grey levels")
