"""Several updates of several clients: linked by what they span, attacked together, and judged."""

from clients import MEAN, STD, normalise, pictures, prior, tiny  # isort: skip  mjp before timm

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from mjp.common.errors import InputError
from mjp.method.model import MJP
from mjp.privacy.attacks import find_attacks
from mjp.privacy.client.victim import make_update
from mjp.privacy.combination import parse
from mjp.privacy.examine.conclusion import EXPOSED, NOT_COVERED, NOT_RECOVERED, conclude
from mjp.privacy.examine.coverage import Gap
from mjp.privacy.examine.federation import networks_of_rounds
from mjp.privacy.examine.finding import Finding, Outcome, Verdict
from mjp.privacy.examine.several import Group, attack_group, conclude_all, link, open_updates
from mjp.privacy.examine.sources import find_sources
from mjp.privacy.metrics import psnr
from mjp.privacy.network import shared_network
from mjp.privacy.update import Update


def updates(defence: str, numbers: list[int]) -> list[tuple[MJP, Update]]:
    """One update of one of these pictures in every round, each with weights and a jigsaw of its own."""
    combination = parse(defence)
    network = shared_network(tiny(dtype=torch.float32), combination)
    others = normalise(pictures(8, start=40)).float()
    models = networks_of_rounds(network, others, torch.arange(8), len(numbers), torch.Generator().manual_seed(0))
    rounds = []
    for turn, (model, number) in enumerate(zip(models, numbers, strict=True)):
        image = normalise((pictures(start=number) + 0.37 / 255).clamp(0, 1)).float()  # between the grey levels
        jigsaw = torch.Generator().manual_seed(100 + turn)
        update, _ = make_update(model, image, torch.tensor([4]), combination, generator=jigsaw, mean=MEAN, std=STD)
        rounds.append((model, update))
    return rounds


def opened(defence: str, numbers: list[int], factor: float = 1.0) -> Group:
    sent = {
        str(number): (model.state_dict(), {name: factor * t for name, t in update.tensors.items()}, update.info)
        for number, (model, update) in enumerate(updates(defence, numbers), 1)
    }
    network = shared_network(tiny(dtype=torch.float32), parse(defence))
    return open_updates(sent, network, prior=prior())


def test_the_updates_of_two_clients_in_one_folder_are_told_apart() -> None:
    groups = link(opened("mjp:0.25", [3, 7, 3, 7, 3, 8]))
    assert [list(group) for group in groups] == [["1", "3", "5"], ["2", "4"], ["6"]]


@pytest.mark.parametrize("factor", [1.0, -1.0])
def test_linked_updates_are_exposed_together(factor: float) -> None:
    """A gradient may come with either sign; alone, none of the updates is recovered."""
    (group,) = link(opened("mjp:0.25", [3] * 4, factor))
    alone = attack_group(group, find_attacks(["subspace"]))
    together = attack_group(group, find_attacks(["rounds"]))
    truth = (pictures(start=3)[0] + 0.37 / 255).clamp(0, 1)
    assert max(psnr(truth, finding.pictures[0]).item() for finding in alone if finding.pictures is not None) < 40
    assert [finding.update for finding in alone] == ["1", "2", "3", "4"]
    assert [finding.update for finding in together] == ["1"]
    assert together.conclusion.verdict == EXPOSED
    assert together[0].pictures is not None
    assert psnr(truth, together[0].pictures[0]).item() > 60


def test_an_update_without_the_patch_projection_is_linked_to_none() -> None:
    group = opened("none", [3, 3])
    del group["1"].update.tensors["patch_embed.proj.weight"]
    assert [list(one) for one in link(group)] == [["1"], ["2"]]


def test_the_same_update_twice_is_refused() -> None:
    ((model, update),) = updates("none", [3])
    sent = (model.state_dict(), update.tensors, update.info)
    with pytest.raises(InputError, match="2: 1 holds the same update, bit for bit: name one of them"):
        open_updates({"1": sent, "2": sent}, model, prior=prior())


def finding(outcome: Outcome, name: str, update: str) -> Finding:
    reason = "it cannot" if outcome == "refused" else None
    return Finding(name, torch.zeros(1, 3, 8, 8), reason, Verdict(outcome, "", ""), update=update)


def test_an_attack_that_ran_on_some_updates_only_is_named_in_both_lists() -> None:
    conclusion = conclude([finding("not recovered", "direct", "a"), finding("refused", "direct", "b")])
    assert conclusion.ran == ("direct",)
    assert conclusion.could_not_run == {"direct": "on 1 of 2 updates: it cannot"}


def test_the_verdict_on_all_is_the_worst() -> None:
    hidden = conclude([finding("not recovered", "direct", "a")])
    open_ = conclude([finding("explains", "direct", "b")])
    foreign = conclude([finding("not recovered", "direct", "c")], [Gap("what", "remains")])
    assert conclude_all([hidden, hidden]).verdict == NOT_RECOVERED
    assert conclude_all([hidden, foreign]).verdict == NOT_COVERED
    assert conclude_all([hidden, foreign, open_]).verdict == EXPOSED
    assert conclude_all([hidden, foreign, open_]).sentence.startswith("exposed: 1 of 3 groups of linked updates; ")
    assert conclude_all([hidden]) == hidden


def test_a_leak_log_is_read_round_by_round_at_the_weights_beside(tmp_path: Path) -> None:
    for number in (1, 2):
        folder = tmp_path / f"round-{number}"
        folder.mkdir()
        for name in ("weights", "b", "a"):
            save_file({"head.bias": torch.ones(1)}, folder / f"{name}.safetensors")
        (folder / "a.json").write_text("{}")
    sources = find_sources([tmp_path])
    assert [source.name for source in sources] == [
        *("round-1/a.safetensors", "round-1/b.safetensors", "round-2/a.safetensors", "round-2/b.safetensors")
    ]
    assert all(source.weights == source.file.with_name("weights.safetensors") for source in sources)
    globbed = sorted((tmp_path / "round-1").glob("*.safetensors"))  # as a shell lists them, with the weights
    assert [source.name for source in find_sources(globbed)] == ["a.safetensors", "b.safetensors"]
    stated = find_sources([tmp_path / "round-1"], [tmp_path / "x"])
    assert {source.weights for source in stated} == {tmp_path / "x"}


def test_bad_lists_of_files_are_refused(tmp_path: Path) -> None:
    one, two = tmp_path / "one.pt", tmp_path / "two.pt"
    for path in (one, two):
        path.touch()
    (tmp_path / "link.pt").symlink_to(one)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="is there twice: name every update once"):
        find_sources([one, two, tmp_path / "link.pt"])
    with pytest.raises(InputError, match="names 3 files for 2 updates: name one for all of them, or one for each"):
        find_sources([one, two], [one] * 3)
    with pytest.raises(InputError, match="there is no update in"):
        find_sources([tmp_path / "empty"])
    with pytest.raises(InputError, match="name at least one update"):
        find_sources([])
