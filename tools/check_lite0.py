"""Check the converted EfficientNet-Lite0 on real pictures: top-1 among the folder's classes and among all 1000.

    python tools/check_lite0.py IMAGENETTE/val

IMAGENETTE/val holds one folder per class of Imagenette, under the names below.
"""

import sys
from pathlib import Path

import torch

import mjp  # noqa: F401  before timm
from mjp.aladin.model.backbones.lite0 import MEAN, STD, lite0

IMAGENET = {
    **{"tench": 0, "English_springer": 217, "cassette_player": 482, "chain_saw": 491, "church": 497},
    **{"French_horn": 566, "garbage_truck": 569, "gas_pump": 571, "golf_ball": 574, "parachute": 701},
}


@torch.no_grad()
def main(folder: Path) -> None:
    from timm.data import create_transform
    from torchvision.datasets import ImageFolder

    transform = create_transform(224, mean=MEAN, std=STD, crop_pct=1.0, interpolation="bicubic")
    data = ImageFolder(folder, transform)
    numbers = torch.tensor([IMAGENET[name] for name in data.classes])
    model, among_ten, among_all = lite0(), 0, 0
    for images, labels in torch.utils.data.DataLoader(data, batch_size=32):
        logits = model(images)
        among_ten += int((logits[:, numbers].argmax(1) == labels).sum())
        among_all += int((logits.argmax(1) == numbers[labels]).sum())
    print(f"{len(data)} pictures: top-1 {100 * among_ten / len(data):.1f} % among the {len(numbers)} classes, ", end="")
    print(f"{100 * among_all / len(data):.1f} % among 1000")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
