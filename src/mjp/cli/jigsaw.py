"""See what MJP does to a picture, and check its guarantees on a real network, in seconds and without a download.

Writes jigsaw.png (what is masked, what the network receives, what the inverse restores, from γ = .03 to 1) and
results.json (six guarantees, measured here and now on a randomly initialised model).
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from torch import Tensor, nn

    from mjp import MJP, Plan

RATIOS = (0.03, 0.09, 0.27, 0.5, 0.9, 1.0)


@dataclass
class Options:
    picture: Path | None = None
    """Your own picture; a drawn landscape without one."""
    model: str = "deit_tiny_patch16_224"
    """A timm ViT, randomly initialised: what is checked here does not depend on training."""
    ratio: float = 0.27
    """Mask ratio γ of the checks."""
    seed: int = 0
    """Seed of weights and plans."""
    out: Path = Path("out/jigsaw")
    """Folder for the results."""


def run(options: Options) -> None:
    import timm
    import torch

    from mjp import MJP, InputError, variant
    from mjp.common.files import write_atomically
    from mjp.pictures.crop import open_square
    from mjp.pictures.landscape import landscape

    if not timm.is_model(options.model):
        raise InputError(f"timm has no model {options.model!r}: timm.list_models() names them")
    config = variant("J", ratio=options.ratio, seed=options.seed)
    torch.manual_seed(options.seed)  # for the weights, which timm draws from torch's global generator
    model = MJP(timm.create_model(options.model), config).eval()
    size = cast(Any, model.unwrap()).patch_embed.img_size[0]
    picture = landscape(size) if options.picture is None else open_square(options.picture, size)
    sheet = _sheet(picture, model.adapter.cell, options.seed)
    checks = _guarantees(model, picture, options.seed)
    for value, meaning in checks.values():
        print(f"{value:>10.3g}  {meaning}")
    options.out.mkdir(parents=True, exist_ok=True)
    write_atomically(options.out / "jigsaw.png", sheet.save)
    settings = {"model": options.model, "ratio": options.ratio, "seed": options.seed}
    text = json.dumps({**settings, **{name: value for name, (value, _) in checks.items()}}, indent=2)
    write_atomically(options.out / "results.json", lambda path: path.write_text(text + "\n"))
    print(f"\npicture  {options.out / 'jigsaw.png'}\nfigures  {options.out / 'results.json'}")


def _sheet(picture: "Tensor", cell: tuple[int, int], seed: int) -> Any:
    """Mask, jigsaw and restored picture for each ratio."""
    import torch

    from mjp import sample_plan, shuffle_image
    from mjp.pictures.patches import image_grid
    from mjp.pictures.sheet import contact_sheet

    rows: dict[str, list[Tensor]] = {"masked": [], "shuffled": [], "put back": []}
    for ratio in RATIOS:
        plan = sample_plan(1, image_grid(picture, cell), ratio, generator=torch.Generator().manual_seed(seed))
        shuffled = shuffle_image(picture, plan, cell)
        rows["masked"].append(_tinted(picture, plan, cell)[0])
        rows["shuffled"].append(shuffled[0])
        rows["put back"].append(shuffle_image(shuffled, plan.inverted(), cell)[0])
    title = "Block-wise masked jigsaw: orange patches are masked, change places and share one unknown position"
    return contact_sheet(rows, [f"mask ratio {ratio:g}" for ratio in RATIOS], title=title)


def _tinted(picture: "Tensor", plan: "Plan", cell: tuple[int, int]) -> "Tensor":
    mask = plan.mask.view(1, 1, *plan.grid).repeat_interleave(cell[0], 2).repeat_interleave(cell[1], 3)
    orange = picture.new_tensor([1.0, 0.55, 0.1]).view(1, 3, 1, 1)
    return picture.where(~mask, 0.35 * picture + 0.65 * orange)


def _guarantees(model: "MJP", picture: "Tensor", seed: int) -> dict[str, tuple[float, str]]:
    """name: (measured, what it means)."""
    import torch

    from mjp import plan_from_mask, shuffle_image, shuffle_tokens, variant
    from mjp.method.model import MJP

    timm_model: Any = model.unwrap()
    plan = model.sample_plan(picture)
    other = plan_from_mask(plan.mask, plan.grid, generator=torch.Generator().manual_seed(seed + 1))
    keeping = MJP(timm_model, variant("E", ratio=model.config.ratio)).eval()
    with torch.no_grad():
        off = (model(picture) - timm_model(picture)).abs().max().item()
        tokens = shuffle_tokens(timm_model.patch_embed(picture).flatten(1, -2), plan)
        pixels = timm_model.patch_embed(shuffle_image(picture, plan, model.adapter.cell)).flatten(1, -2)
    restored = shuffle_image(shuffle_image(picture, plan, model.adapter.cell), plan.inverted(), model.adapter.cell)
    return {
        "masked_patches": (
            float(plan.mask.sum()),
            f"patches masked, of ⌊{model.config.ratio:g} · {plan.mask.shape[1]}⌋",
        ),
        "off_difference": (off, "largest difference to timm's own logits without a plan (0 = bit for bit)"),
        "inverse_difference": ((restored - picture).abs().max().item(), "largest difference after shuffle and inverse"),
        "path_difference": (
            _relative(tokens, pixels),
            "relative difference, shuffled tokens to embedded shuffled pixels",
        ),
        "order_in_gradient": (
            _relative(_gradient(model, picture, plan), _gradient(model, picture, other)),
            "relative change of the gradient when masked patches change order, with E_unk",
        ),
        "order_in_gradient_without_unknown": (
            _relative(_gradient(keeping, picture, plan), _gradient(keeping, picture, other)),
            "the same without E_unk (positions kept): the order is in the gradient",
        ),
    }


def _gradient(model: "nn.Module", picture: "Tensor", plan: "Plan") -> "Tensor":
    """The gradient of one training step, all parameters in one vector."""
    import torch
    from torch.nn.functional import cross_entropy

    trained = [p for p in model.parameters() if p.requires_grad]
    loss = cross_entropy(model(picture, plan).logits, torch.tensor([0]))
    gradients = torch.autograd.grad(loss, trained, allow_unused=True)
    return torch.cat([g.flatten() for g in gradients if g is not None])


def _relative(a: "Tensor", b: "Tensor") -> float:
    return ((a - b).norm() / b.norm()).item()
