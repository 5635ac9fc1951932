"""Models that come with the package: the same small ViT, plain and MJP, trained by one recipe on all of CIFAR-10.

    model = mjp.load("mini-cifar10-mjp")        an MJP model in eval mode: model(images) gives logits

Their cards (models/NAME/README.md) say how they were trained and what they reach.
"""

from importlib.resources import as_file, files

from mjp.errors import InputError
from mjp.method.model import MJP

SHIPPED = ("mini-cifar10-plain", "mini-cifar10-mjp")


def load(name: str) -> MJP:
    """A shipped model by name."""
    if name not in SHIPPED:
        raise InputError(f"there is no shipped model {name!r}: choose from {', '.join(SHIPPED)}")
    with as_file(files("mjp").joinpath("models", name)) as folder:
        return MJP.from_pretrained(folder).eval()
