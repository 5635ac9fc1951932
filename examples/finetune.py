"""Fine-tune a pretrained model with MJP in your own loop: python examples/finetune.py

A small ViT that knows the ten classes of CIFAR-10 learns to tell animals from vehicles. Weights and pictures come with
the package, so this runs offline in seconds. With your own pictures, create the model with pretrained=True; or use the
command, which does all of this and can be interrupted: mjp train --recipe finetune --pretrained --data DIR
"""

import mjp  # isort: skip  before timm: it makes torchvision importable beside a CPU build of torch

import timm
import torch
from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.optim import create_optimizer_v2
from torch import Tensor
from torch.nn.functional import cross_entropy

from mjp.pictures.sets import embedded

VEHICLES = {"airplane", "automobile", "ship", "truck"}
STEPS, BATCH = 25, 32


def pictures(split: str) -> tuple[Tensor, Tensor]:
    """(N, 3, 32, 32) normalised pictures; label 1 for a vehicle, 0 for an animal."""
    data = embedded(split)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD))
    images = (torch.from_numpy(data.pixels).permute(0, 3, 1, 2) / 255 - mean) / std
    return images, torch.tensor([int(data.classes[label] in VEHICLES) for label in data.labels])


def accuracy(model: mjp.MJP, images: Tensor, labels: Tensor) -> float:
    """Percent, on whole pictures: in eval mode there is no jigsaw."""
    with torch.inference_mode():
        return 100 * (model.eval()(images).argmax(1) == labels).float().mean().item()


def main() -> float:
    torch.manual_seed(0)
    size = {"img_size": 32, "patch_size": 4, "embed_dim": 96, "depth": 6, "num_heads": 3}
    vit = timm.create_model("deit_tiny_patch16_224", num_classes=2, **size)
    pretrained = mjp.load("mini-cifar10-plain").unwrap().state_dict()
    body = {name: tensor for name, tensor in pretrained.items() if not name.startswith("head.")}  # the head is new
    vit.load_state_dict(body, strict=False)

    # wrap after loading: E_unk then starts at the mean of the pretrained position table
    model = mjp.MJP(vit, mjp.preset("paper", ratio=0.15, unknown_init="mean"))
    # the lower a layer, the more slowly it learns; the head has the full rate
    optimizer = create_optimizer_v2(model, "adamw", lr=1e-3, weight_decay=0.05, layer_decay=0.75)

    images, labels = pictures("train")
    order = torch.randperm(len(images))
    for step in range(STEPS):
        batch = order[step * BATCH : (step + 1) * BATCH]
        out = model.train()(images[batch])  # shuffles, hides positions, and localises
        loss = cross_entropy(out.logits, labels[batch]) + model.config.localize_weight * out.dal
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 4:
            print(f"step {step + 1}: loss {loss.item():.3f}")

    result = accuracy(model, *(part[::4] for part in pictures("val")))
    print(f"animals or vehicles: {result:.1f} % right after {STEPS} steps (always the larger class: 60 %)")
    return result


if __name__ == "__main__":
    main()
