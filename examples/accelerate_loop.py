"""MJP under Hugging Face Accelerate: accelerate launch examples/accelerate_loop.py (or plain python)

The wrapper is an ordinary nn.Module: `prepare` it like any other. Every process draws jigsaws of its own.
"""

import mjp  # before timm: beside a CPU build of torch it makes torchvision importable

# isort: split
import timm
import torch
from accelerate import Accelerator
from timm.optim import create_optimizer_v2
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from mjp.pictures.sets import embedded


def main(steps: int = 20) -> float:
    accelerator = Accelerator()
    torch.manual_seed(0)
    pictures = embedded("train")
    images = torch.from_numpy(pictures.pixels[::10].copy()).permute(0, 3, 1, 2) / 127.5 - 1
    data = TensorDataset(images, torch.tensor(pictures.labels[::10]))
    size = {"img_size": 32, "patch_size": 4, "embed_dim": 96, "depth": 4, "num_heads": 3, "num_classes": 10}
    model = mjp.MJP(timm.create_model("vit_tiny_patch16_224", **size), mjp.variant("J", ratio=0.27))
    optimizer = create_optimizer_v2(model, "adamw", lr=1e-3, weight_decay=0.05)
    weight = model.config.localize_weight  # read it before `prepare`, which may wrap the model in DDP
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=64, shuffle=True))
    model.train()
    losses: list[float] = []
    while len(losses) < steps:
        for batch, labels in loader:
            out = model(batch)
            loss = cross_entropy(out.logits, labels) + weight * out.dal
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            if len(losses) == steps:
                break
    accelerator.print(f"loss {losses[0]:.3f} at the first step, {losses[-1]:.3f} at the last")
    plain = accelerator.unwrap_model(model).unwrap()  # the timm model itself
    accelerator.print(f"unwrapped: {type(plain).__name__}")
    return losses[-1]


if __name__ == "__main__":
    main()
