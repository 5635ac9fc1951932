"""The guarantee for every kind of position that is hidden, over a model of each kind (kinds.py)."""

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import mjp
from method.kinds import (
    BIAS_TABLES,
    KINDS,
    RELATIVE,
    ROTARY,
    SINGLE,
    TABLES,
    WITH_ROWS,
    double,
    hiding,
    position_rows,
    relative_rows,
    reordered,
    step,
)
from method.tiny import SMALL_VIT, generator, gradients, half_masked, pictures, relative_difference
from mjp.common.distributed import join
from mjp.method.backbones import families
from processes import in_two_processes

TOOLS = ["rotations", "mixed", "dinov3, its own sizes", "rotations and table", "qwen3", "beit", "beit with table",
         "relpos, class token", "relpos, shared", "cait", "naflex", "naflex, rows and columns"]  # fmt: skip


def test_every_family_that_promises_exchangeable_patches_is_among_the_kinds() -> None:
    adapters = {type(mjp.MJP(make(), mjp.variant("G")).adapter) for make in KINDS.values()}
    assert {family.ADAPTER for family in families().values() if family.ADAPTER.exchangeable} == adapters


@pytest.mark.parametrize("kind", KINDS)
def test_off_is_timm_bit_for_bit(kind: str) -> None:
    network = KINDS[kind]()
    expected = network(pictures(2))
    model = hiding(network)
    assert torch.equal(model(pictures(2)), expected)
    assert torch.equal(model(pictures(2), mjp.identity_plan(2, (4, 4))).logits, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_off_is_timm_bit_for_bit_in_training_under_autocast(kind: str) -> None:
    network = KINDS[kind]().train()
    model = hiding(network).train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.manual_seed(0)  # for dropout in networks of biases
        expected = network(pictures(2))
        torch.manual_seed(0)
        logits = model(pictures(2), mjp.identity_plan(2, (4, 4))).logits
    assert logits.dtype == expected.dtype
    if kind == "naflex, rows and columns":  # timm rounds both tables before it adds them
        torch.testing.assert_close(logits, expected, rtol=0.02, atol=0.02)
    else:
        assert torch.equal(logits, expected)


@pytest.mark.parametrize("precise", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_ignores_the_order_of_hidden_patches(kind: str, precise: bool) -> None:
    model, images, plan = hiding(KINDS[kind]()), pictures(2), half_masked(2)
    if precise:
        model, images = double(model), images.double()
    difference = relative_difference(step(model, images, plan), step(model, images, reordered(plan)))
    assert difference <= (1e-12 if precise and kind not in SINGLE else 1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_shows_the_order_when_nothing_is_hidden(kind: str) -> None:
    model = double(mjp.MJP(KINDS[kind](), mjp.variant("E", ratio=0.5)))
    images, plan = pictures(2).double(), half_masked(2)
    assert relative_difference(step(model, images, plan), step(model, images, reordered(plan))) > 1e-4


@pytest.mark.parametrize("kind", WITH_ROWS)
def test_rows_of_the_table_that_are_hidden_have_a_gradient_of_exactly_zero(kind: str) -> None:
    model, plan = hiding(KINDS[kind]()), half_masked(1)
    step(model, pictures(1), plan)
    assert torch.equal(position_rows(model), ~plan.mask[0])


@pytest.mark.parametrize("kind", BIAS_TABLES)
def test_distances_that_only_hidden_patches_have_get_a_gradient_of_exactly_zero(kind: str) -> None:
    model, plan = hiding(KINDS[kind]()), half_masked(1, ratio=0.8)
    step(model, pictures(1), plan)
    visible = ~plan.mask[0]
    tables = relative_rows(model)
    assert tables
    for gradient, distances in tables[:1]:  # behind the last block only a class token may count
        shown = distances[visible][:, visible].unique()
        hidden = [distance for distance in distances.unique().tolist() if distance not in shown]
        assert hidden
        assert (gradient[hidden] == 0).all()
        assert (gradient[shown] != 0).any(1).all()


@pytest.mark.parametrize("kind", RELATIVE)
def test_all_three_unknown_biases_of_every_head_and_table_learn(kind: str) -> None:
    model = hiding(KINDS[kind]())
    step(model, pictures(2), half_masked(2))
    assert model.biases is not None
    assert model.biases.grad is not None
    assert model.biases.grad[0].ne(0).all()  # behind the last block only a class token may count
    assert "biases" in model.no_weight_decay()


@pytest.mark.parametrize("kind", RELATIVE)
def test_unknown_biases_start_at_zero_or_at_the_mean(kind: str) -> None:
    network = KINDS[kind]().train()
    zeros = mjp.MJP(network, mjp.variant("G")).biases
    means = mjp.MJP(network, mjp.variant("G", unknown_init="mean")).biases
    assert zeros is not None
    assert means is not None
    assert not zeros.any()
    assert means.ne(0).all()
    assert torch.equal(means[:, 0], means[:, 2])
    assert all(module.training for module in network.modules())


# --- tools ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TOOLS)
def test_compiles_into_one_graph_forward_and_backward(kind: str) -> None:
    torch._dynamo.reset()
    model, images, plan = double(hiding(KINDS[kind]())), pictures(2).double(), half_masked(2)
    expected = step(model, images, plan)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    model.zero_grad()
    compiled(images, plan).logits.square().sum().backward()
    assert relative_difference(gradients(model).values(), expected) < 1e-12


@pytest.mark.parametrize("kind", TOOLS)
def test_gradient_checkpointing_changes_nothing(kind: str) -> None:
    model, images, plan = double(hiding(KINDS[kind]()).train()), pictures(2).double(), half_masked(2)
    network: Any = model.model
    torch.manual_seed(0)  # a network in the place of a table of biases has dropout
    expected = step(model, images, plan)
    network.set_grad_checkpointing(True)
    torch.manual_seed(0)
    assert relative_difference(step(model, images, plan), expected) < 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_autocast_trains(kind: str) -> None:
    model = hiding(KINDS[kind]()).train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(pictures(2), half_masked(2))
    assert out.logits.dtype == torch.bfloat16
    out.logits.float().square().sum().backward()
    assert all(torch.isfinite(gradient).all() for gradient in gradients(model).values())


@pytest.mark.parametrize("kind", ["cait", "rotations and table", "beit with table", "relpos, shared", "naflex"])
def test_every_parameter_is_used_while_nothing_is_masked(kind: str) -> None:
    """DDP waits for the gradient of every parameter, also in a step without a jigsaw."""
    rotation = "learned" if kind in ROTARY else "identity"
    model = hiding(KINDS[kind](), unknown_rotation=rotation).train()
    model(pictures(2), mjp.identity_plan(2, (4, 4))).logits.sum().backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


def ddp_model(kind: str) -> mjp.MJP:
    torch.manual_seed(0)
    model: mjp.MJP = double(hiding(KINDS[kind]()))
    return model


def ddp_worker(folder: Path) -> None:
    """The gradients of one of two processes, for one model of each kind; its part of the batch is one picture."""
    torch.set_num_threads(1)
    with join("cpu") as world:
        for kind in ("rotations", "beit"):
            model = ddp_model(kind)
            row = slice(world.rank, world.rank + 1)
            mask, permutation, inverse = (tensor[row] for tensor in half_masked(2)[:3])
            plan = mjp.Plan(mask, permutation, inverse, (4, 4), 8)
            parallel = DistributedDataParallel(model)
            parallel(pictures(2).double()[row], plan).logits.square().sum().backward()
            torch.save(gradients(model), folder / f"{kind}{world.rank}.pt")


def test_ddp_gives_the_mean_of_what_one_process_computes(tmp_path: Path) -> None:
    assert in_two_processes(ddp_worker, tmp_path) == [0, 0]
    for kind in ("rotations", "beit"):
        model = ddp_model(kind)
        expected = [gradient / 2 for gradient in step(model, pictures(2).double(), half_masked(2))]
        for rank in range(2):
            received = torch.load(tmp_path / f"{kind}{rank}.pt")
            assert relative_difference(received.values(), expected) < 1e-10


@pytest.mark.parametrize("kind", ["rotations", "beit", "relpos, shared", "cait", "naflex", "qwen3"])
def test_gradients_of_single_pictures_add_up_to_that_of_the_batch(kind: str) -> None:
    model, images, plan = double(hiding(KINDS[kind]())), pictures(2).double(), half_masked(2)
    labels = torch.tensor([1, 7])
    rows = mjp.per_sample_gradients(model, images, labels, plan)
    model.zero_grad()
    nn.functional.cross_entropy(model(images, plan).logits, labels, reduction="sum").backward()
    expected = gradients(model)
    assert relative_difference([rows[name].sum(0) for name in expected], expected.values()) < 1e-10


@pytest.mark.parametrize("name", ["beit_base_patch16_224", "qwen3_vit_88m", "deepseek_vit_412m", "cait_xxs24_224"])
def test_a_model_survives_saving(name: str, tmp_path: Path) -> None:
    model = hiding(timm.create_model(name, **SMALL_VIT))
    model.save_pretrained(tmp_path, model_args=SMALL_VIT)
    loaded = mjp.MJP.from_pretrained(tmp_path).eval()
    assert torch.equal(loaded(pictures(2), half_masked(2)).logits, model(pictures(2), half_masked(2)).logits)


# --- what a preset does -----------------------------------------------------------------------------------------------


def test_a_preset_keeps_hiding_biases_and_loses_what_needs_a_table() -> None:
    with pytest.warns(UserWarning, match=r"Beit: its positions are relative biases, with no table to localise; .*DAL"):
        model = mjp.MJP(KINDS["beit"](), "private")
    assert (model.config.position, model.config.localize, model.config.ratio) == ("unknown", "none", 0.27)


def test_without_a_configuration_the_same_is_said_as_with_the_name_of_a_preset() -> None:
    for make in (KINDS["beit"], KINDS["rotations"]):
        with pytest.warns(UserWarning, match=r"with no table to localise; the localization loss \(DAL\) is off"):
            assert mjp.MJP(make()).hides_positions


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind in TABLES or "table" in kind or "qwen3" in kind])
def test_where_there_is_a_table_it_is_localised(kind: str) -> None:
    model = mjp.MJP(KINDS[kind](), "private").train()
    out = model(pictures(2), half_masked(2))
    assert out.dal > 0
    out.dal.backward()
    assert any(gradient.any() for name, gradient in gradients(model).items() if "pos_embed" in name)


@pytest.mark.parametrize(
    ("kind", "config", "reason"),
    [
        ("beit", mjp.variant("J"), "its positions are relative biases, with no table to localise: set localize='none'"),
        ("beit", mjp.variant("F"), "no table to add an index embedding to"),
        ("relpos", mjp.variant("B"), "position='none' erases a table, not relative biases"),
        ("relpos", mjp.variant("G", ape=True), "`ape` is for Swin"),
        ("naflex", mjp.variant("F"), "cannot be changed by position='index'"),
        ("naflex", mjp.variant("B"), "cannot be changed by position='none'"),
        ("qwen3", mjp.variant("F"), "takes no index embedding"),
        ("cait", mjp.variant("G", cell=16), "leave `cell` unset"),
    ],
)
def test_what_a_kind_cannot_carry_is_refused(kind: str, config: mjp.MJPConfig, reason: str) -> None:
    with pytest.raises(mjp.InputError, match=reason):
        mjp.MJP(KINDS[kind](), config)


@pytest.mark.parametrize("name", ["deepseek_vit_412m_align", "qwen3_vit_88m_merge"])
def test_a_projector_that_joins_neighbours_is_refused(name: str) -> None:
    arguments: dict[str, Any] = {"depth": 1, "embed_dim": 48, "num_heads": 3, "out_features": 8}
    with pytest.raises(mjp.InputError, match="joins neighbouring patches and so sees their order"):
        mjp.MJP(timm.create_model(name, **arguments), "private")


@pytest.mark.parametrize("kind", ["beit", "cait", "relpos"])
def test_a_size_that_timm_cannot_change_is_refused_with_what_helps(kind: str) -> None:
    model = hiding(KINDS[kind]())
    with pytest.raises(mjp.InputError, match="timm cannot change the input size"):
        model.set_input_size((48, 48))
    with pytest.raises(mjp.InputError, match="resize the images, or create it with their size"):
        model.train()(pictures(2, 48, 48))


def test_noise_of_hidden_biases_reaches_only_pairs_with_a_hidden_patch() -> None:
    """With one hidden patch per side: its bias changes the logits, and without hidden patches it does not."""
    model, images = hiding(KINDS["relpos"]()), pictures(2)
    before = model(images, mjp.identity_plan(2, (4, 4))).logits
    hidden = model(images, half_masked(2)).logits
    nn.init.normal_(model.biases, generator=generator(9))  # type: ignore[arg-type]
    assert torch.equal(model(images, mjp.identity_plan(2, (4, 4))).logits, before)
    assert not torch.allclose(model(images, half_masked(2)).logits, hidden)
