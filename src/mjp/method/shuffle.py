"""Carry out a plan, on tokens or on pixels. Both are differentiable and both are undone by `plan.inverted()`.

For a ViT the two are one function up to its patch embedding, which treats every patch alike:
embed(shuffle_image(x)) == shuffle_tokens(embed(x)). Shuffling tokens moves far less memory.
"""

import torch
from torch import Tensor

from mjp.common.errors import InputError
from mjp.method.plan import Plan, check_plan, sample_plan
from mjp.pictures.patches import image_grid, patch_sides, patchify, unpatchify


def shuffle_tokens(tokens: Tensor, plan: Plan, *, prefix: int | None = None) -> Tensor:
    """Shuffle tokens by a plan; prefix tokens (class, distillation, registers) stay where they are.

    Args:
        tokens: (B, prefix + N, D).
        plan: For B images and N cells.
        prefix: Number of prefix tokens. By default it is found out, and may be 0 or 1.

    Returns:
        Tokens of the same shape; slot i holds the token of slot plan.permutation[i].
    """
    batch, length, width = _three_sizes(tokens)
    check_plan(plan, batch, None, tokens.device)  # how many tokens there are is looked at below
    cells = plan.mask.shape[1]
    surplus = length - cells
    if surplus not in ((0, 1) if prefix is None else (prefix,)):
        place = "" if prefix is None else f" after a prefix of {prefix}"
        raise InputError(
            f"tokens has {length} tokens, but the plan shuffles {cells} (grid {plan.grid}){place}: draw a plan for "
            "this grid, or state the number of prefix tokens"
        )
    if plan.budget == 0:
        return tokens
    # one flat index_select is nearly as fast as a copy; gather or advanced indexing cost several times that
    source = plan.permutation + torch.arange(surplus, batch * length, length, device=tokens.device).unsqueeze(1)
    if surplus:
        first = torch.arange(0, batch * length, length, device=tokens.device).unsqueeze(1)
        source = torch.cat([first + torch.arange(surplus, device=tokens.device), source], 1)
    return tokens.reshape(batch * length, width).index_select(0, source.flatten()).view(batch, length, width)


def shuffle_image(images: Tensor, plan: Plan, patch: int | tuple[int, int]) -> Tensor:
    """Shuffle the patches of images by a plan.

    Args:
        images: (B, C, H, W), sides a multiple of the patch.
        plan: For B images and the grid that the patch gives.
        patch: Side of a patch in pixels, or (height, width).

    Returns:
        (B, C, H, W), the same pixels in other places.
    """
    rows, columns = image_grid(images, patch)
    check_plan(plan, len(images), (rows, columns), images.device)
    if plan.budget == 0 and plan.pixels is None:
        return images
    patches = shuffle_tokens(patchify(images, patch), plan, prefix=0)
    if plan.pixels is not None:
        patches = _shuffle_pixels(patches, plan.pixels, images.shape[1])
    return unpatchify(patches, (rows, columns), patch)


def spp(images: Tensor, patch: int | tuple[int, int], *, generator: torch.Generator, shared: bool = False) -> Tensor:
    """Shuffle all patches of images, and the pixels in each (variant C of the ablation table).

    Args:
        images: (B, C, H, W), sides a multiple of the patch.
        patch: Side of a patch in pixels, or (height, width).
        generator: The only source of randomness.
        shared: Shuffle all images alike.

    Returns:
        (B, C, H, W). The patches of an image share one order of their pixels.
    """
    plan = sample_spp_plan(len(images), image_grid(images, patch), patch, generator=generator, shared=shared)
    return shuffle_image(images, plan.to(images.device), patch)


def sample_spp_plan(
    batch: int,
    grid: tuple[int, int],
    patch: int | tuple[int, int],
    *,
    generator: torch.Generator,
    shared: bool = False,
    derangement: bool = False,
    probability: float = 1.0,
) -> Plan:
    """A plan that moves every patch and holds an order of pixels for each image."""
    plan = sample_plan(
        batch,
        grid,
        1.0,
        generator=generator,
        sampler="uniform",
        shared=shared,
        derangement=derangement,
        probability=probability,
    )
    ph, pw = patch_sides(patch)
    draws = 1 if shared else batch
    pixels = torch.rand(draws, ph * pw, generator=generator, device=generator.device).argsort(1).expand(batch, -1)
    # a batch that is left alone (then nothing is masked) keeps its pixels where they are too
    pixels = torch.where(plan.mask[:, :1], pixels, torch.arange(ph * pw, device=pixels.device))
    return plan._replace(pixels=pixels)


def _shuffle_pixels(patches: Tensor, pixels: Tensor, channels: int) -> Tensor:
    """(B, N, C·P·P) patches with their pixels reordered by (B, P·P) `pixels`; the colours of a pixel stay together."""
    batch, cells, length = patches.shape
    if pixels.shape[1] * channels != length:
        raise InputError(f"the plan reorders {pixels.shape[1]} pixels per patch, the patches have {length // channels}")
    source = pixels.view(batch, 1, 1, -1).expand(-1, cells, channels, -1)
    return patches.view(batch, cells, channels, -1).gather(3, source).view(batch, cells, length)


def _three_sizes(tokens: Tensor) -> tuple[int, int, int]:
    if not isinstance(tokens, Tensor) or tokens.ndim != 3:
        shape = tuple(tokens.shape) if isinstance(tokens, Tensor) else type(tokens).__name__
        raise InputError(f"tokens must be a tensor of shape (batch, tokens, width), not {shape}")
    batch, length, width = tokens.shape
    return batch, length, width
