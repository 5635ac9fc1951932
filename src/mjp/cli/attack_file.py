"""`mjp attack --gradients FILE`: what an update from elsewhere gives away, and how sure one can be of it.

Nobody here knows the client's pictures, so a reconstruction is checked against the update itself: its gradient must be
the update's. That takes the weights at which the update was made. With others nothing matches, also a perfect copy, and
the worst that an audit can do is to call that safe.
"""

import math
from typing import TYPE_CHECKING, Any

from mjp.cli.attack import FACTS, Options, find_subject, tile
from mjp.common.errors import InputError
from mjp.privacy.attacks import Attack
from mjp.privacy.client.defences import parse
from mjp.privacy.client.victim import shared_network
from mjp.privacy.examine import Finding, try_attack
from mjp.privacy.server.linear import EXACT
from mjp.privacy.server.public_pictures import find_prior
from mjp.privacy.server.self_check import CONVINCING, EXPLAINED
from mjp.privacy.server.view import View
from mjp.privacy.update import Facts, Update, plain_name, read_tensors, stated_facts

if TYPE_CHECKING:
    from mjp.cli.attack import Result
    from mjp.method.model import MJP
    from mjp.models import Subject

FAR = 0.5  # from [0, 1], in pixel values


def audit_file(options: Options, attacks: list[Attack]) -> "Result":
    assert options.gradients is not None
    subject, network, update = _open(options)
    own = (tuple(subject.mean), tuple(subject.std))
    if (tuple(update.facts.mean), tuple(update.facts.std)) != own:
        print("note: the update states another normalisation than the model's own; the update's is used")
    prior = find_prior(options.prior, subject.size)
    view = View(update, network, prior)  # checks model, shapes and numbers before anything is tried
    print(f"update of {update.facts.batch} picture(s), {len(view.gradients)} tensors, defence {update.facts.defence!r}")
    known = bool(options.weights or options.pretrained or not options.model.startswith("timm:"))
    shown, findings = [], []
    for attack in attacks:
        found = try_attack(attack, network, update, prior, None)
        plausible = found.pictures is not None and prior.plausible(found.pictures[0])
        short, text = verdict(found, digits=_digits(found, view), known=known, plausible=plausible)
        print(f"  {found.attack:<16}{text}")
        shown.append(tile(found, short))
        findings.append({**found.to_dict(), "verdict": text})
    if all(found["refused"] for found in findings):
        raise InputError("no attack can run on this update; the reasons are above")
    figures = {"findings": findings, "facts": vars(update.facts)}
    return {"update": shown}, list(options.attacks), f"{options.gradients.name}: what the server sees", figures


def _open(options: Options) -> "tuple[Subject, MJP, Update]":
    """The model, the network that client and server share under the stated defence, and the update."""
    assert options.gradients is not None
    stated = stated_facts(options.gradients, **{name: getattr(options, name) for name in FACTS})
    defence = parse(stated.get("defence", "none"))
    tensors = read_tensors(options.gradients)
    names = {plain_name(name): tensor for name, tensor in tensors.items()}
    build: dict[str, Any] = {"num_classes": names["head.bias"].numel()} if "head.bias" in names else {}
    if "size" in stated:
        build["img_size"] = stated["size"]
    subject = find_subject(options, **build)
    network = shared_network(subject.model, defence)
    localizes = network.localizer is not None and any(name.startswith("localizer.") for name in names)
    own = {
        "batch": defence.batch,
        "size": subject.size,
        "mean": subject.mean,
        "std": subject.std,
        "localize_weight": network.config.localize_weight if localizes else 0.0,
    }
    return subject, network, Update(tensors, Facts(**{**own, **stated}))


def verdict(found: Finding, *, digits: int, known: bool, plausible: bool) -> tuple[str, str]:
    """In a few words, and in a sentence.

    `digits` to which its equations hold, 0 for few; `known`: the weights are the client's, as far as one was told.
    """
    if found.refused:
        return "refused", f"refuses: {found.refused}"
    match = found.facts.get("match")
    equations = f"a picture whose equations hold to {digits} digits, which takes no weights"
    if match is None:
        short = "not to be checked"
        text = f"{equations if digits else 'a picture'}; without the classifier's gradient it cannot be checked further"
    elif match >= EXPLAINED:
        short, text = f"match {match:.4f}", f"a picture that explains the update (match {match:.4f})"
    elif digits:
        short = f"equations hold to {digits} digits"
        certain = match > CONVINCING or _beyond(found)  # clipped pixels match nothing, whatever the weights
        doubt = "" if certain else " with those here, which may not be the client's: state --weights"
        text = f"{equations}; match {match:.2f}{doubt}"
    elif match > CONVINCING:
        short = f"in part, match {match:.3f}"
        text = f"a picture that explains the update only in part (match {match:.3f}): parts of it may be wrong"
    elif not known:
        short = "cannot be checked"
        looks = (
            "it looks like a picture" if plausible else "look at it yourself"
        )  # one of ten pictures is not plausible
        text = f"cannot be checked: the weights may not be the client's (match {match:.2f}), state --weights; {looks}"
    else:
        short = f"no reconstruction, match {match:.2f}"
        text = f"nothing that explains the update (match {match:.2f}): not a reconstruction"
    if beyond := _beyond(found):
        short += f"; pixels {beyond}"
        text += f"; its pixels go from {beyond} instead of 0 to 1: state --mean and --std of the client"
    if guessed := found.facts.get("open_dimensions"):
        text += f"; {guessed} dimensions of its patches are open and guessed"
    return short, f"{text}, {found.seconds:.1f} s"


def _digits(found: Finding, view: View) -> int:
    """To how many digits a closed form's equations, which must be more than the unknowns, hold; 0 for few."""
    noise, (unknowns, equations) = found.facts.get("noise", 1.0), view.table.shape
    return -math.ceil(math.log10(noise)) if 0 < noise < EXACT and equations > unknowns else 0


def _beyond(found: Finding) -> str:
    """The range of the pixels before they were clipped, if that is not the range of a picture."""
    low, high = found.facts.get("range", (0.0, 1.0))
    if found.facts.get("open_dimensions"):  # then it says nothing about the normalisation
        return ""
    return f"{low:.1f} to {high:.1f}" if low < -FAR or high > 1 + FAR else ""
