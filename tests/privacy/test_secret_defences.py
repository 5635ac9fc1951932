"""Defences that draw from the client's secret key: sticky jigsaws and dither."""

import pytest
import torch
from scipy.stats import kstest
from torch import Tensor

from clients import MEAN, STD, attack, pictures, prior, send, tiny
from mjp.common.errors import InputError
from mjp.common.secret_key import SecretKey
from mjp.method.plan import Plan
from mjp.pictures.tensors import per_channel
from mjp.privacy.attacks import lattice
from mjp.privacy.attacks.subspace import open_system
from mjp.privacy.metrics import exact_patches, patch_psnr, psnr
from mjp.privacy.server.view import View

KEY = SecretKey.simulated(0)


def plan_of(defence: str, *, seed: int = 1, key: SecretKey = KEY) -> Plan:
    return send(tiny(), defence, seed=seed, key=key)[2].plans[0]


def levels(defence: str, **options: int) -> Tensor:
    """The pictures of an update in grey levels, as the network got them."""
    images = send(tiny(), defence, key=KEY, **options)[2].images  # type: ignore[arg-type]
    return (images * per_channel(STD, images) + per_channel(MEAN, images)) * 255


def test_a_sticky_jigsaw_is_the_same_in_every_round() -> None:
    first, again = plan_of("mjp-sticky:0.5", seed=1), plan_of("mjp-sticky:0.5", seed=2)
    assert torch.equal(first.permutation, again.permutation)
    assert not torch.equal(plan_of("mjp:0.5", seed=1).permutation, plan_of("mjp:0.5", seed=2).permutation)


def test_it_depends_on_the_key_and_on_the_picture() -> None:
    plan = plan_of("mjp-sticky:0.5+batch:4")
    assert len({row.numpy().tobytes() for row in plan.permutation}) == 4
    other = plan_of("mjp-sticky:0.5+batch:4", key=SecretKey.simulated(1))
    assert not any(torch.equal(a, b) for a, b in zip(plan.permutation, other.permutation, strict=True))


def test_company_in_the_batch_and_dither_do_not_change_it() -> None:
    alone = plan_of("mjp-sticky:0.5").permutation[0]
    assert torch.equal(alone, plan_of("mjp-sticky:0.5+batch:4").permutation[0])
    assert torch.equal(alone, plan_of("mjp-sticky:0.5+dither").permutation[0])


def test_local_steps_repeat_it() -> None:
    plans = send(tiny(), "mjp-sticky:0.5+fedavg:3", key=KEY)[2].plans
    assert len(plans) == 3
    assert all(torch.equal(plan.permutation, plans[0].permutation) for plan in plans)


def test_it_masks_as_many_patches_as_mjp() -> None:
    assert int(plan_of("mjp-sticky:0.5").mask.sum()) == int(plan_of("mjp:0.5").mask.sum()) == 8


@pytest.mark.parametrize("defence", ["mjp-sticky:0.5", "dither", "dither+bf16"])
def test_without_a_key_nothing_leaves(defence: str) -> None:
    with pytest.raises(InputError, match="secret key"):
        send(tiny(), defence)


def test_dither_is_uniform_and_exactly_one_level_wide() -> None:
    noise = levels("dither+batch:8") - levels("batch:8")
    assert 0.499 < float(noise.max()) <= 0.5
    assert -0.5 <= float(noise.min()) < -0.499
    assert kstest((noise.flatten() + 0.5).numpy(), "uniform").pvalue > 0.01


def test_after_dither_the_rest_modulo_one_says_nothing_about_the_pixel() -> None:
    """Uniform modulo one for even and for odd pixels alike; noise of another width is not."""
    before, after = levels("batch:8"), levels("dither+batch:8")
    for parity in (0, 1):
        rest = (after % 1)[before.round() % 2 == parity]
        assert kstest(rest.numpy(), "uniform").pvalue > 0.01
    narrow = (before + 0.5 * (after - before)) % 1
    assert kstest(narrow.flatten().numpy(), "uniform").pvalue < 1e-6


def test_dither_is_the_same_again() -> None:
    """Otherwise several rounds would average it out."""
    assert torch.equal(levels("dither", seed=1), levels("dither", seed=2))


def exact_share(defence: str, name: str = "lattice") -> float:
    """Share of unmasked patches that an attack recovers bit for bit, on three pictures."""
    shares = []
    for start in (3, 40, 77):
        network, update, secret = send(tiny(dtype=torch.float32), defence, start=start, key=KEY)
        exact = exact_patches(pictures(start=start)[0], attack(name, network, update).pictures[0], 8)
        shares.append(float(exact[~secret.mask[0]].double().mean()))
    return sum(shares) / len(shares)


def test_dither_breaks_the_integer_step(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fpylll")
    monkeypatch.setattr(lattice, "_activations", lambda *_: None)  # integers alone
    assert exact_share("mjp-sticky:0.27") > 0.9
    assert exact_share("mjp-sticky:0.27+dither") < 0.05


@pytest.mark.parametrize("start", [3, 40, 77])
def test_dither_does_not_stop_what_the_first_mlp_gives_away(start: int) -> None:
    """Every unmasked patch comes out but for the dither itself: uniform noise of one level has 58.9 dB."""
    network, update, secret = send(tiny(dtype=torch.float32), "mjp-sticky:0.27+dither", start=start, key=KEY)

    def unmasked(name: str) -> Tensor:
        rebuilt = attack(name, network, update).pictures[0]
        return patch_psnr(pictures(start=start)[0], rebuilt, 8)[~secret.mask[0]]

    assert float(unmasked("subspace").median()) < 40
    assert float(unmasked("activations").min()) > 57


def test_dither_alone_hides_nothing_from_a_system_with_one_solution() -> None:
    assert exact_share("dither", "direct") > 0.8  # the rest is noise of nearly half a level, rounded the other way


def after_rounds(defence: str, rounds: int) -> float:
    """PSNR of the picture that all rounds agree on; the model changes in between, and the server links the updates."""
    model = tiny()
    changes = torch.Generator().manual_seed(0)
    normal: Tensor | float = 0.0
    right: Tensor | float = 0.0
    for number in range(rounds):
        for parameter in model.parameters():
            parameter.data += 1e-3 * torch.randn(parameter.shape, dtype=parameter.dtype, generator=changes)
        network, update, _ = send(model, defence, seed=number, key=KEY)
        view = View(update, network, prior())
        system = open_system(view)
        fixed = torch.eye(system.free.shape[1], dtype=torch.float64) - system.free.T @ system.free
        normal, right = normal + fixed, right + system.origin @ fixed
    patches = torch.linalg.lstsq(normal, right.T).solution.T  # type: ignore[union-attr]
    return psnr(pictures()[0], view.picture(patches).clamp(0, 1)).item()


def test_rounds_undo_new_jigsaws_and_add_nothing_to_a_sticky_one() -> None:
    assert after_rounds("mjp:0.3", 6) > 60
    assert after_rounds("mjp-sticky:0.3", 6) < 25
    assert after_rounds("mjp-sticky:0.3+dither", 6) < 25
