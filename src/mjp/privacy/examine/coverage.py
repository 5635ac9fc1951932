"""What no attack here is made for, and what remains exploitable in it all the same."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mjp.common.errors import InputError
from mjp.common.parameter_names import plain_name
from mjp.privacy.combination import parse
from mjp.privacy.info import UpdateInfo
from mjp.privacy.server.view import View
from mjp.privacy.update import Update

LABELS = "the classes of the pictures, from the gradient of the classifier"
FEATURES = "the features of a picture before the classifier, up to their scale: inverting features is a known attack"
MIN_COSINE = 0.9  # between weights before and after local steps
MAX_COSINE = 0.3  # between weights and a gradient
MIN_NUMBERS = 1000  # of a matrix that is looked at: among fewer, Gaussian noise has no large ones either
MAX_RATIO = 4.0  # largest to median magnitude: of gradients 20 and more, of noise 5, of a few steps of Adam 1 to 4

MIN_SHARE = 0.03  # of the largest singular value: rounding to bfloat16 leaves less, a second picture usually more
MIN_STEPS = 32.0  # of the number format: below, a singular value is rounding


class Gap(NamedTuple):
    """A part of an update, or a fact about it, that the attacks do not model."""

    what: str
    remains: str


def optimizer_gaps(steps: Mapping[str, Tensor], info: UpdateInfo) -> list[Gap]:
    """What the local optimizer hides; `steps` are what the update says about gradients, by name."""
    span = "the span of the patches, which every sum of gradients shares; classes, from the signs of the classifier"
    if info.kind != "gradient" and info.optimizer == "unknown":
        return [Gap("the local optimizer is not known", span)]
    if info.kind != "gradient" and info.optimizer in ("adam", "adamw"):
        if info.steps == 1 and info.lr:
            return [Gap(f"of the first step of {info.optimizer} rounding leaves little but the signs", span)]
        return [Gap(f"steps of {info.optimizer} are undone only one at a time and with a known lr", span)]
    if _is_levelled(steps):
        return [
            Gap("the numbers are about equally large, as after steps of Adam or signed SGD: state --optimizer", span)
        ]
    return []


def check_kind(update: Update, changes: Mapping[str, Tensor], model: nn.Module) -> None:
    """Refuse weights that are called gradients, and gradients that are called weights: no attack would see anything.

    changes: as `changes_of` has them. Weights after a few steps point where the weights before point; gradients do not.
    """
    weights = {plain_name(name): p.detach().double() for name, p in model.named_parameters() if p.ndim >= 2}
    names = [name for name in changes if name in weights and bool(weights[name].any())]
    if not names:
        return
    before = torch.cat([weights[name].flatten() for name in names])
    change = torch.cat([changes[name].double().flatten() for name in names])
    sent = before - change if update.info.kind == "fedavg" else change
    cosine = float(torch.nn.functional.cosine_similarity(before, sent, 0).abs())
    if update.info.kind == "fedavg" and cosine < MAX_COSINE:
        raise InputError(
            "the update is stated as weights after local steps, but it has nothing in common with the weights before: "
            "state kind gradient or delta, or the weights at which it was made"
        )
    if update.info.kind != "fedavg" and cosine > MIN_COSINE:
        raise InputError(
            f"the update is stated as a {update.info.kind}, but it holds the weights themselves: state kind fedavg, "
            "with steps and lr"
        )


def batch_gaps(view: View) -> list[Gap]:
    """Whether the stated number of pictures contradicts the classifier's gradient: the attacks are made for the number.

    Σ_b (softmax − one-hot)_b f_bᵀ is of rank B for B pictures, at most the number of classes less one, in one step.
    """
    head = view.gradients.get("head.weight")
    batch = view.info.batch
    if head is None or view.info.steps > 1 or not bool(head.any()) or parse(view.info.defence).changes_numbers:
        return []
    values = torch.linalg.svdvals(head)
    rounding = MIN_STEPS * view.resolution
    least = int((values > max(MIN_SHARE, rounding) * values[0]).sum())
    most = int((values > rounding * values[0]).sum())
    remains = "what the attacks find that are made for the true number"
    if least > batch:
        what = (
            f"the classifier's gradient is of rank {least} or more, not of {_pictures(batch)}, or noisy: state --batch"
        )
        return [Gap(what, remains)]
    if most < min(batch, len(head) - 1, head.shape[1]):
        return [Gap(f"the classifier's gradient is of rank {most}, not of {_pictures(batch)}: state --batch", remains)]
    return []


def _pictures(count: int) -> str:
    return "one picture" if count == 1 else f"{count} pictures"


def broken_gaps(names: Sequence[str]) -> list[Gap]:
    """Layers with NaN or infinity, which are treated as if they had not left."""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    what = f"NaN or infinity is in {names[0]}{more}, which was left out" if names else ""
    return [Gap(what, "the rest of the update, and the numbers beside the broken ones")] if names else []


def drop_adapters(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The update without the matrices of LoRA, which the public model does not have."""
    return {name: tensor for name, tensor in tensors.items() if not _is_adapter(name)}


def parameter_gaps(tensors: Mapping[str, Tensor]) -> list[Gap]:
    """What the parameters that did not leave, or that the public model does not have, hide."""
    base = {name for name, tensor in drop_adapters(tensors).items() if bool(tensor.any())}
    adapters = len(base) < len(tensors) and any(map(_is_adapter, tensors))
    head = f"{LABELS}; {FEATURES}" if any(name.startswith("head.") for name in base) else ""
    if adapters and not base - {name for name in base if name.startswith("head.")}:
        product = "∂L/∂A = Bᵀ ∂L/∂W holds r mixtures of the tokens for every layer of rank r, and ∂L/∂B as many"
        return [Gap("only matrices of LoRA left the client", "; ".join(filter(None, (product, head))))]
    if not base or "patch_embed.proj.weight" in base:
        return []
    if not any(name == "pos_embed" or name.startswith("blocks.0.") for name in base):
        inner = (
            "" if all(name.startswith("head.") for name in base) else "the span of the tokens that enter these layers"
        )
        remains = "; ".join(filter(None, (head, inner)))
        return [Gap("only the last layers left the client", remains or "the span of the features that enter them")]
    parts = ["the span of the tokens, from the first attention layer" if _has_attention(base) else "", head]
    parts.insert(1, "which patches are masked" if "pos_embed" in base else "")
    return [Gap("the patch embedding did not leave the client", "; ".join(filter(None, parts)))]


def _is_levelled(steps: Mapping[str, Tensor]) -> bool:
    """Whether the large numbers that gradients have are missing from every matrix."""
    matrices = [
        tensor.double().abs() for tensor in steps.values() if tensor.ndim >= 2 and tensor.numel() >= MIN_NUMBERS
    ]
    sizes = [matrix[matrix > 0] for matrix in matrices if bool(matrix.any())]
    return bool(sizes) and all(float(size.max() / size.median()) < MAX_RATIO for size in sizes)


def _has_attention(names: set[str]) -> bool:
    return any(name.startswith("blocks.0.attn.qkv") for name in names)


def _is_adapter(name: str) -> bool:
    return "lora_" in name.lower() or ".lora." in name.lower()
