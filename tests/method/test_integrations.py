"""MJP under the tools that people train with: DDP, torch.compile, autocast, Opacus."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import mjp
from method.tiny import generator, gradients, half_masked, pictures, relative_difference, vit
from mjp.common.distributed import join
from mjp.method.config import VARIANTS
from processes import in_two_processes

LABELS = torch.tensor([1, 7, 3, 0])


def loss_of(model: mjp.MJP, out: mjp.MJPOutput, labels: Tensor = LABELS) -> Tensor:
    return cross_entropy(out.logits, labels) + model.config.localize_weight * out.dal


# --- distributed data parallel ----------------------------------------------------------------------------------------


def part(plan: mjp.Plan, rank: int) -> mjp.Plan:
    """The two rows of a plan for four images that belong to one of two processes."""
    mask, permutation, inverse = (tensor[2 * rank : 2 * rank + 2] for tensor in plan[:3])
    return mjp.Plan(mask, permutation, inverse, plan.grid, plan.budget)


def ddp_model(preset: str) -> mjp.MJP:
    torch.manual_seed(0)
    return mjp.MJP(vit(), mjp.preset(preset, localize_weight=0.3)).double().train()


def ddp_gradients(preset: str, images: Tensor, labels: Tensor, plan: mjp.Plan | None, epochs: tuple[int, ...]) -> Any:
    """The gradients of one process after backward passes in these epochs."""
    model = ddp_model(preset)
    parallel = DistributedDataParallel(model)
    for epoch in epochs:
        model.epoch = epoch
        loss_of(model, parallel(images, plan), labels).backward()
    return gradients(model)


def ddp_worker(folder: Path) -> None:
    torch.set_num_threads(1)
    with join("cpu") as world:
        rows = slice(2 * world.rank, 2 * world.rank + 2)
        images, labels = pictures().double()[rows], LABELS[rows]
        found = ddp_gradients("private", images, labels, part(half_masked(), world.rank), epochs=(0,))
        torch.save(found, folder / f"gradients{world.rank}.pt")
        # before its start epoch nothing is masked; DDP complains in the next step about parameters that were not used
        found = ddp_gradients("reference", images, labels, None, epochs=(0, 0, 20, 20, 20))
        torch.save(found, folder / f"reference{world.rank}.pt")


@pytest.fixture(scope="module")
def ddp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which two processes left their gradients."""
    folder = tmp_path_factory.mktemp("ddp")
    assert in_two_processes(ddp_worker, folder) == [0, 0]
    return folder


def test_ddp_gives_the_gradients_of_one_process_with_the_whole_batch(ddp: Path) -> None:
    model = ddp_model("private")
    loss_of(model, model(pictures().double(), half_masked())).backward()
    expected = gradients(model)
    for rank in range(2):
        found = torch.load(ddp / f"gradients{rank}.pt")
        assert found.keys() == expected.keys()
        assert relative_difference(found.values(), expected.values()) < 1e-10


def test_ddp_finds_every_parameter_used_while_the_jigsaw_is_inactive(ddp: Path) -> None:
    found = [torch.load(ddp / f"reference{rank}.pt") for rank in range(2)]
    assert "unknown" in found[0]
    assert relative_difference(found[0].values(), found[1].values()) == 0


# --- torch.compile ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VARIANTS)
def test_compiles_into_one_graph_forward_and_backward(name: str) -> None:
    torch._dynamo.reset()
    model = mjp.MJP(vit(), VARIANTS[name]).double().train()
    plan = half_masked() if name != "C" else model.sample_plan(pictures())
    images = pictures().double()
    loss_of(model, model(images, plan)).backward()
    expected = gradients(model)
    model.zero_grad()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    loss_of(model, compiled(images, plan)).backward()
    assert relative_difference(gradients(model).values(), expected.values()) < 1e-12


def test_a_compiled_model_takes_new_plans_without_compiling_again() -> None:
    torch._dynamo.reset()
    model = mjp.MJP(vit(), "paper").eval()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with torch.no_grad(), torch.compiler.set_stance("default"):
        compiled(pictures(), half_masked(seed=0))
        with torch.compiler.set_stance("fail_on_recompile"):
            found = compiled(pictures(), half_masked(seed=1)).logits
        assert torch.equal(found, model(pictures(), half_masked(seed=1)).logits)


# --- autocast and other precisions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["H", "I", "J"])
def test_under_autocast_the_localization_loss_stays_in_full_precision(name: str) -> None:
    model = mjp.MJP(vit(), VARIANTS[name]).train()
    plan = half_masked()
    expected = model(pictures(), plan).dal
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(pictures(), plan)
    assert out.logits.dtype == torch.bfloat16
    assert out.dal.dtype == torch.float32
    assert torch.equal(out.dal, expected)
    loss_of(model, out).backward()
    assert all(torch.isfinite(gradient).all() for gradient in gradients(model).values())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", ["F", "H", "J"])
def test_a_whole_model_may_be_cast(name: str, dtype: torch.dtype) -> None:
    model = mjp.MJP(vit(), VARIANTS[name]).to(dtype).train()
    out = model(pictures().to(dtype), half_masked())
    loss_of(model, out).backward()
    assert out.logits.dtype == dtype
    assert all(torch.isfinite(gradient).all() for gradient in gradients(model).values())


# --- Opacus -----------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Secure RNG turned off")
@pytest.mark.parametrize("name", ["G", "J"])
def test_opacus_takes_our_per_sample_gradients(name: str) -> None:
    opacus = pytest.importorskip("opacus")
    model: Any = mjp.MJP(vit(), mjp.variant(name, ratio=0.5)).train()
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
    loader: Any = DataLoader(TensorDataset(pictures(), LABELS), batch_size=4)
    private, optimizer, _ = opacus.PrivacyEngine().make_private(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        noise_multiplier=0.0,
        max_grad_norm=0.5,
        grad_sample_mode="no_op",
        poisson_sampling=False,
    )
    wrapped: mjp.MJP = private._module
    plan = half_masked()
    rows = mjp.per_sample_gradients(wrapped, pictures(), LABELS, plan)
    for key, gradient in rows.items():
        parameter: Any = wrapped.get_parameter(key)
        parameter.grad_sample = gradient
    before = {key: p.detach().clone() for key, p in wrapped.named_parameters()}
    optimizer.step()
    # the oracle: clip every image's gradient to 0.5, average, take a step of 0.1
    norms = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in rows.values()]).norm(dim=0)
    factor = (0.5 / (norms + 1e-6)).clamp(max=1)
    expected = [before[key] - 0.1 * torch.einsum("b,b...->...", factor, gradient) / 4 for key, gradient in rows.items()]
    found = [wrapped.get_parameter(key).detach() for key in rows]
    assert (factor < 1).all()
    moved = [after - before[key] for key, after in zip(rows, found, strict=True)]
    wanted = [after - before[key] for key, after in zip(rows, expected, strict=True)]
    assert relative_difference(moved, wanted) < 1e-3


# --- optimizers and checkpoints ---------------------------------------------------------------------------------------


def test_training_lowers_the_loss_and_moves_every_parameter() -> None:
    model = mjp.MJP(vit(), mjp.variant("J", ratio=0.5, localize_weight=0.1)).train()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        loss = loss_of(model, model(pictures()))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
    assert all(not torch.equal(p, before[name]) for name, p in model.named_parameters())


def test_state_dict_round_trip_through_torch_save(tmp_path: Path) -> None:
    model = mjp.MJP(vit(), "private").eval()
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    other = mjp.MJP(vit(), "private").eval()
    nn.init.normal_(other.get_parameter("unknown"), generator=generator(9))
    other.load_state_dict(torch.load(tmp_path / "weights.pt", weights_only=True))
    assert torch.equal(other(pictures(), half_masked()).logits, model(pictures(), half_masked()).logits)
