"""Carrying out plans on tokens and pixels."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from timm.layers import PatchEmbed
from torch import Tensor

import mjp
from method.tiny import generator, half_masked, pictures
from mjp.method.shuffle import sample_spp_plan

GRIDS = st.tuples(st.integers(1, 6), st.integers(1, 6))
PATCHES = st.tuples(st.integers(1, 4), st.integers(1, 4))
SEEDS = st.integers(0, 2**32)


def tokens_of(batch: int, length: int, width: int = 3, *, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.arange(batch * length * width, dtype=dtype).view(batch, length, width)


def patch_of(image: Tensor, cell: int, grid: tuple[int, int], patch: tuple[int, int]) -> Tensor:
    """(C, P, P): one patch of one (C, H, W) image, by slicing."""
    row, column = divmod(cell, grid[1])
    return image[:, row * patch[0] : (row + 1) * patch[0], column * patch[1] : (column + 1) * patch[1]]


# --- tokens -----------------------------------------------------------------------------------------------------------


@given(grid=GRIDS, ratio=st.floats(0, 1), seed=SEEDS, prefix=st.integers(0, 5))
def test_slot_i_receives_the_token_of_slot_permutation_i(
    grid: tuple[int, int], ratio: float, seed: int, prefix: int
) -> None:
    plan = half_masked(3, grid, seed, ratio)
    tokens = tokens_of(3, prefix + grid[0] * grid[1])
    shuffled = mjp.shuffle_tokens(tokens, plan, prefix=prefix)
    for image in range(3):
        assert torch.equal(shuffled[image, :prefix], tokens[image, :prefix])
        for slot, source in enumerate(plan.permutation[image].tolist()):
            assert torch.equal(shuffled[image, prefix + slot], tokens[image, prefix + source])


@given(grid=GRIDS, ratio=st.floats(0, 1), seed=SEEDS, prefix=st.integers(0, 5))
def test_inverted_plan_restores_tokens(grid: tuple[int, int], ratio: float, seed: int, prefix: int) -> None:
    plan = half_masked(2, grid, seed, ratio)
    tokens = tokens_of(2, prefix + grid[0] * grid[1])
    shuffled = mjp.shuffle_tokens(tokens, plan, prefix=prefix)
    assert torch.equal(mjp.shuffle_tokens(shuffled, plan.inverted(), prefix=prefix), tokens)


def test_identity_plan_returns_the_very_tokens() -> None:
    tokens = tokens_of(2, 17)
    assert mjp.shuffle_tokens(tokens, mjp.identity_plan(2, (4, 4))) is tokens


def test_shuffle_tokens_has_the_right_gradient() -> None:
    tokens = torch.randn(2, 7, 3, generator=generator(), dtype=torch.float64, requires_grad=True)
    plan = half_masked(2, (2, 3), ratio=0.9)
    assert torch.autograd.gradcheck(lambda t: mjp.shuffle_tokens(t, plan), (tokens,))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64])
def test_shuffle_tokens_keeps_any_dtype(dtype: torch.dtype) -> None:
    plan = half_masked(2)
    tokens = tokens_of(2, 17, 1, dtype=dtype)
    shuffled = mjp.shuffle_tokens(tokens, plan)
    assert shuffled.dtype == dtype
    assert torch.equal(shuffled.double(), mjp.shuffle_tokens(tokens.double(), plan))


def test_shuffle_tokens_takes_views_that_are_not_contiguous() -> None:
    plan = half_masked(2)
    tokens = torch.randn(17, 6, 2, generator=generator()).permute(2, 0, 1)
    assert not tokens.is_contiguous()
    assert torch.equal(mjp.shuffle_tokens(tokens, plan), mjp.shuffle_tokens(tokens.contiguous(), plan))


def test_shared_plan_moves_all_images_alike() -> None:
    plan = mjp.sample_plan(3, (4, 4), 0.5, generator=generator(), shared=True)
    tokens = tokens_of(1, 16).expand(3, -1, -1)
    shuffled = mjp.shuffle_tokens(tokens, plan)
    assert torch.equal(shuffled[0], shuffled[1])
    assert torch.equal(shuffled[0], shuffled[2])
    assert not torch.equal(shuffled, tokens)


@pytest.mark.parametrize("ratio", [0.0, 0.5])
def test_shuffle_tokens_compiles_into_one_graph(ratio: float) -> None:
    plan, tokens = half_masked(2, ratio=ratio), tokens_of(2, 17)
    compiled = torch.compile(mjp.shuffle_tokens, backend="eager", fullgraph=True)
    assert torch.equal(compiled(tokens, plan), mjp.shuffle_tokens(tokens, plan))


@pytest.mark.parametrize(
    ("shape", "prefix", "names"),
    [
        ((2, 15, 3), None, "tokens.*15"),
        ((2, 18, 3), None, "tokens.*18"),  # more than a class token must be stated: it may be the wrong grid
        ((2, 16, 3), -1, "prefix of -1"),
        ((2, 17, 3), 0, "prefix of 0"),
        ((2, 17, 3), 2, "prefix of 2"),
        ((3, 16, 3), None, "batch"),
        ((2, 16), None, "tokens must be a tensor of shape"),
        ((2, 4, 4, 3), None, "tokens must be a tensor of shape"),
    ],
)
def test_shuffle_tokens_refuses_what_does_not_fit_the_plan(
    shape: tuple[int, ...], prefix: int | None, names: str
) -> None:
    with pytest.raises(mjp.InputError, match=names):
        mjp.shuffle_tokens(torch.zeros(shape), half_masked(2), prefix=prefix)


# --- pixels -----------------------------------------------------------------------------------------------------------


@given(grid=GRIDS, patch=PATCHES, ratio=st.floats(0, 1), seed=SEEDS)
def test_slot_i_receives_the_patch_of_slot_permutation_i(
    grid: tuple[int, int], patch: tuple[int, int], ratio: float, seed: int
) -> None:
    plan = half_masked(2, grid, seed, ratio)
    images = pictures(2, grid[0] * patch[0], grid[1] * patch[1])
    shuffled = mjp.shuffle_image(images, plan, patch)
    assert shuffled.shape == images.shape
    for image in range(2):
        for slot, source in enumerate(plan.permutation[image].tolist()):
            there = patch_of(shuffled[image], slot, grid, patch)
            assert torch.equal(there, patch_of(images[image], source, grid, patch))


@given(grid=GRIDS, patch=PATCHES, ratio=st.floats(0, 1), seed=SEEDS)
def test_inverted_plan_restores_images(grid: tuple[int, int], patch: tuple[int, int], ratio: float, seed: int) -> None:
    plan = half_masked(2, grid, seed, ratio)
    images = pictures(2, grid[0] * patch[0], grid[1] * patch[1])
    assert torch.equal(mjp.shuffle_image(mjp.shuffle_image(images, plan, patch), plan.inverted(), patch), images)


def test_identity_plan_returns_the_very_images() -> None:
    images = pictures(2)
    assert mjp.shuffle_image(images, mjp.identity_plan(2, (4, 4)), 8) is images


def test_one_number_stands_for_a_square_patch() -> None:
    images, plan = pictures(2), half_masked(2)
    assert torch.equal(mjp.shuffle_image(images, plan, 8), mjp.shuffle_image(images, plan, (8, 8)))


def test_shuffle_image_has_the_right_gradient() -> None:
    images = torch.randn(2, 2, 4, 6, generator=generator(), dtype=torch.float64, requires_grad=True)
    plan = half_masked(2, (2, 3), ratio=0.9)
    assert torch.autograd.gradcheck(lambda x: mjp.shuffle_image(x, plan, 2), (images,))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.uint8])
def test_shuffle_image_keeps_any_dtype(dtype: torch.dtype) -> None:
    plan = half_masked(2)
    images = torch.randint(0, 255, (2, 3, 32, 32), generator=generator()).to(dtype)
    shuffled = mjp.shuffle_image(images, plan, 8)
    assert shuffled.dtype == dtype
    assert torch.equal(shuffled.double(), mjp.shuffle_image(images.double(), plan, 8))


@pytest.mark.parametrize(
    "change", [lambda x: x.to(memory_format=torch.channels_last), lambda x: x.transpose(2, 3), lambda x: x.flip(1)]
)
def test_shuffle_image_takes_any_memory_layout(change: Callable[[Tensor], Tensor]) -> None:
    images, plan = change(pictures(2)), half_masked(2)
    expected = mjp.shuffle_image(images.contiguous(memory_format=torch.contiguous_format), plan, 8)
    assert torch.equal(mjp.shuffle_image(images, plan, 8), expected)


def test_shuffle_image_compiles_into_one_graph() -> None:
    images, plan = pictures(2), half_masked(2)
    compiled = torch.compile(mjp.shuffle_image, backend="eager", fullgraph=True)
    assert torch.equal(compiled(images, plan, 8), mjp.shuffle_image(images, plan, 8))


def test_shuffle_image_leaves_its_input_alone() -> None:
    images = pictures(2)
    before = images.clone()
    mjp.shuffle_image(images, half_masked(2), 8)
    assert torch.equal(images, before)


@pytest.mark.parametrize(
    ("shape", "patch", "names"),
    [
        ((2, 3, 32, 30), 8, "32x30 pixels.*8x8.*multiple of the patch"),
        ((2, 3, 31, 32), 8, "31x32"),
        ((2, 3, 32, 32), 0, "patch must be a whole number"),
        ((2, 3, 32, 32), 8.0, "patch must be a whole number"),
        ((2, 3, 32, 32), "8", "patch must be a whole number"),
        ((2, 3, 32, 32), (8, 8, 8), "patch must be two whole numbers"),
        ((2, 3, 32, 32), -8, "patch must be a whole number"),
        ((2, 3, 32, 32), (8, 5), "patches of 8x5"),
        ((2, 3, 32, 32), 16, "grid"),
        ((2, 3, 64, 16), 8, "grid"),
        ((3, 3, 32, 32), 8, "batch"),
        ((3, 32, 32), 8, "images must be a tensor of shape"),
    ],
)
def test_shuffle_image_refuses_what_does_not_fit(shape: tuple[int, ...], patch: Any, names: str) -> None:
    with pytest.raises(mjp.InputError, match=names):
        mjp.shuffle_image(torch.zeros(shape), half_masked(2), patch)


# --- both paths -------------------------------------------------------------------------------------------------------


@given(
    grid=GRIDS,
    patch=st.sampled_from([(2, 2), (4, 4), (2, 4), (3, 1)]),
    ratio=st.floats(0, 1),
    seed=SEEDS,
    shared=st.booleans(),
)
def test_token_path_equals_pixel_path(
    grid: tuple[int, int], patch: tuple[int, int], ratio: float, seed: int, shared: bool
) -> None:
    """timm's patch embedding treats every patch alike, so it does not matter on which side of it patches move."""
    size = (grid[0] * patch[0], grid[1] * patch[1])
    embed = PatchEmbed(img_size=size, patch_size=patch, embed_dim=7).double()  # type: ignore[arg-type]
    plan = mjp.sample_plan(2, grid, ratio, generator=generator(seed), shared=shared)
    images = pictures(2, *size).double()
    by_pixels = embed(mjp.shuffle_image(images, plan, patch))
    assert torch.allclose(mjp.shuffle_tokens(embed(images), plan), by_pixels, rtol=1e-12, atol=1e-12)


# --- SPP --------------------------------------------------------------------------------------------------------------


def spp_plan(batch: int, grid: tuple[int, int], patch: tuple[int, int], **options: Any) -> mjp.Plan:
    return sample_spp_plan(batch, grid, patch, generator=generator(), **options)


@given(grid=GRIDS, patch=PATCHES, seed=SEEDS)
def test_spp_keeps_the_pixels_of_every_patch_together(grid: tuple[int, int], patch: tuple[int, int], seed: int) -> None:
    """The patches change places and their pixels too, but a patch is made of the pixels of one patch."""
    images = pictures(2, grid[0] * patch[0], grid[1] * patch[1])
    shuffled = mjp.spp(images, patch, generator=generator(seed))

    def patches(image: Tensor) -> list[list[list[float]]]:
        cells = range(grid[0] * grid[1])
        return sorted(sorted(patch_of(image, c, grid, patch).flatten(1).T.tolist()) for c in cells)

    for before, after in zip(images, shuffled, strict=True):
        assert patches(before) == patches(after)


def test_spp_uses_one_pixel_order_for_all_patches_of_an_image() -> None:
    grid, patch = (3, 4), (2, 3)
    images = torch.arange(2 * 6 * 12).view(2, 1, 6, 12)
    plan = spp_plan(2, grid, patch)
    shuffled = mjp.shuffle_image(images, plan, patch)
    orders = []
    for image in range(2):
        for slot, source in enumerate(plan.permutation[image].tolist()):
            there = patch_of(shuffled[image], slot, grid, patch).flatten().tolist()
            came_from = patch_of(images[image], source, grid, patch).flatten().tolist()
            orders.append(tuple(came_from.index(pixel) for pixel in there))
    assert len(set(orders[:12])) == 1
    assert len(set(orders[12:])) == 1
    assert orders[0] != orders[12]
    assert orders[0] != tuple(range(6))


def test_shared_spp_uses_one_pixel_order_for_all_images() -> None:
    plan = spp_plan(3, (4, 4), (8, 8), shared=True)
    assert plan.pixels is not None
    assert (plan.pixels == plan.pixels[:1]).all()
    assert (plan.permutation == plan.permutation[:1]).all()


def test_spp_moves_all_patches_by_a_uniform_permutation() -> None:
    plan = spp_plan(3, (4, 4), (8, 8))
    assert plan.mask.all()
    assert len(torch.unique(plan.permutation, dim=0)) == 3


@given(grid=GRIDS, patch=PATCHES)
def test_inverted_plan_undoes_spp(grid: tuple[int, int], patch: tuple[int, int]) -> None:
    images = pictures(2, grid[0] * patch[0], grid[1] * patch[1])
    plan = spp_plan(2, grid, patch)
    assert torch.equal(mjp.shuffle_image(mjp.shuffle_image(images, plan, patch), plan.inverted(), patch), images)


def test_spp_is_what_its_generator_says() -> None:
    images = pictures(2)
    state = torch.get_rng_state()
    assert torch.equal(mjp.spp(images, 8, generator=generator(3)), mjp.spp(images, 8, generator=generator(3)))
    assert not torch.equal(mjp.spp(images, 8, generator=generator(3)), mjp.spp(images, 8, generator=generator(4)))
    assert torch.equal(torch.get_rng_state(), state)


def test_spp_has_the_right_gradient() -> None:
    images = torch.randn(2, 2, 4, 6, generator=generator(), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: mjp.spp(x, 2, generator=generator()), (images,))


def test_spp_compiles_into_one_graph() -> None:
    images, plan = pictures(2), spp_plan(2, (4, 4), (8, 8))
    compiled = torch.compile(mjp.shuffle_image, backend="eager", fullgraph=True)
    assert torch.equal(compiled(images, plan, 8), mjp.shuffle_image(images, plan, 8))


def test_spp_refuses_images_that_the_patch_does_not_divide() -> None:
    with pytest.raises(mjp.InputError, match="32x30 pixels"):
        mjp.spp(torch.zeros(2, 3, 32, 30), 8, generator=generator())


def test_pixel_order_of_another_patch_size_is_refused() -> None:
    with pytest.raises(mjp.InputError, match="4 pixels per patch, the patches have 64"):
        mjp.shuffle_image(pictures(2), spp_plan(2, (4, 4), (2, 2)), 8)
