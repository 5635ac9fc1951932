"""Vision backbones, and how a picture becomes their input."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from mjp.aladin.model.class_codes import ClassCodes
from mjp.aladin.model.tokens import Tokens, vision_tokens
from mjp.common.fingerprint import fingerprint
from mjp.common.seeds import derive_seed
from mjp.method.plan import Plan
from mjp.pictures.crop import resized
from mjp.pictures.tensors import normalise

MIN_AREA = 0.6  # smallest share of the picture that a random view shows


@dataclass(frozen=True)
class Vision:
    """A backbone in eval mode, also while it is trained: batch norm keeps its statistics, and chunks of a batch give
    what the whole batch gives. Not a torch module: its weights are not saved among ours."""

    name: str
    model: nn.Module
    size: tuple[int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    classes: ClassCodes | None = None  # appended to every token
    trained: bool = False  # with the model, by --train-backbone

    @torch.no_grad()
    def tokens(self, images: Tensor, plan: Plan | None = None) -> Tokens:
        """Tokens of (B, 3, H, W) images from `prepare`."""
        return self.live_tokens(images, plan)

    def live_tokens(self, images: Tensor, plan: Plan | None = None) -> Tokens:
        """The same with gradients."""
        device = next(self.model.parameters()).device
        tokens = vision_tokens(self.model, images.to(device), plan)
        if self.classes is None:
            return tokens
        return tokens._replace(cls=self.classes(tokens.cls), patches=self.classes(tokens.patches))

    @property
    def width(self) -> int:
        """D of its tokens."""
        return self.tokens(torch.zeros(1, 3, *self.size)).patches.shape[-1]

    def prepare(self, picture: Image.Image, view: int = 0, seed: int = 0) -> Tensor:
        """(3, H, W): the whole picture, squeezed to the size of the input.

        View 1 is its mirror image; further views are random crops of 60–100 % of the area, mirrored or not.
        """
        box, mirrored = crop(picture.size, view, seed)
        image = resized(picture, self.size, box)
        return normalise(image.flip(-1) if mirrored else image, self.mean, self.std)

    def enlarged(self, zoom: int) -> "Vision":
        """The same for larger pictures, if the backbone takes any size: if it is a network of convolutions."""
        positions = ("patch_embed", "summary_and_patches")
        network = getattr(self.model, "model", self.model)  # inside MJP
        if any(hasattr(part, name) for part in (self.model, network) for name in positions):
            return self
        return replace(self, size=(zoom * self.size[0], zoom * self.size[1]))

    def identity(self) -> dict[str, Any]:
        """What distinguishes its features from those of another backbone."""
        weights = fingerprint(self.model.state_dict())
        codes = {} if self.classes is None else {"classes": fingerprint({"codes": self.classes.codes})}
        embedding = {"embedding": self.model.embedding} if hasattr(self.model, "summary_and_patches") else {}
        trained = {"trained": True} if self.trained else {}
        common = {"weights": weights, "size": self.size, "mean": self.mean, "std": self.std}
        return {**common, **codes, **embedding, **trained}


def crop(size: tuple[int, int], view: int, seed: int) -> tuple[tuple[float, float, float, float], bool]:
    """The part of a picture that a view shows, (left, top, right, bottom), and whether it is mirrored."""
    width, height = size
    if view < 2:
        return (0, 0, width, height), view == 1
    generator = torch.Generator().manual_seed(derive_seed(seed, view))
    area, x, y, coin = torch.rand(4, generator=generator).tolist()
    share = (MIN_AREA + (1 - MIN_AREA) * area) ** 0.5
    left, top = x * (1 - share) * width, y * (1 - share) * height
    return (left, top, left + share * width, top + share * height), coin < 0.5
