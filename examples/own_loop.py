"""MJP in your own training loop, with timm's parts: python examples/own_loop.py

Three lines differ from a plain loop; they are marked. Trains a tiny ViT on the pictures that come with the package.
"""

import mjp  # before timm: beside a CPU build of torch it makes torchvision importable

# isort: split
import timm
import torch
from timm.optim import create_optimizer_v2
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from mjp.pictures.sets import embedded


def load(split: str, count: int) -> TensorDataset:
    """`count` pictures of the embedded CIFAR-10, spread over its classes, normalised to [-1, 1]."""
    pictures = embedded(split)
    rows = range(0, len(pictures), len(pictures) // count)
    images = torch.from_numpy(pictures.pixels[list(rows)]).permute(0, 3, 1, 2) / 127.5 - 1
    return TensorDataset(images, torch.tensor([pictures.labels[row] for row in rows]))


def main(epochs: int = 3, pictures: int = 1000) -> float:
    torch.manual_seed(0)
    size = {"img_size": 32, "patch_size": 4, "embed_dim": 96, "depth": 4, "num_heads": 3, "num_classes": 10}
    model = mjp.MJP(timm.create_model("vit_tiny_patch16_224", **size), mjp.variant("J", ratio=0.27))  # 1: wrap
    optimizer = create_optimizer_v2(model, "adamw", lr=1e-3, weight_decay=0.05)  # knows not to decay E_unk
    train = DataLoader(load("train", pictures), batch_size=100, shuffle=True)
    for epoch in range(epochs):
        model.train()
        model.epoch = epoch  # presets that start later ask for it
        for images, labels in train:
            out = model(images)  # 2: draws a jigsaw for every picture
            loss = cross_entropy(out.logits, labels) + model.config.localize_weight * out.dal  # 3: add the DAL loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}, DAL {out.dal.item():.3f}")
    model.eval()  # from here on it is timm's model, bit for bit
    with torch.no_grad():
        hits = [model(images).argmax(1) == labels for images, labels in DataLoader(load("val", 500), batch_size=100)]
    accuracy = torch.cat(hits).float().mean().item()
    print(f"top-1 on 500 validation pictures: {100 * accuracy:.1f} %")
    return accuracy


if __name__ == "__main__":
    main()
