"""What an audit measures: one dataclass for the command line, the code and results.json. No torch, for `--help`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mjp.common.errors import InputError
from mjp.common.validate import number, whole
from mjp.privacy.attacks import check_rounds
from mjp.privacy.combination import parse

DEFENCES = (
    *("none", "no-pe", "withheld-pe", "jp:0.27", "mjp:0.03", "mjp:0.09", "mjp:0.27", "mjp:0.5", "mjp:0.9", "mjp:1"),
    *("noise:0.01", "dp:0.1", "prune:0.9", "bf16", "batch:2", "batch:8", "mjp:0.27+bf16"),
)
SEARCH = ("steps", "restarts", "objective", "tv", "edges")  # settings of gradient matching
# what a finished cell depends on; models and defences may be added later
CELL = ("attacks", "data", "pictures", "rounds", "prior", "pretrained", "dtype", "float_pictures", *SEARCH, "seed")


@dataclass
class AuditSettings:
    models: tuple[str, ...] = ("mini-cifar10-plain", "mini-cifar10-mjp")
    """Public models: shipped names, folders, hub repositories, timm:NAME (random weights unless --pretrained)."""
    defences: tuple[str, ...] = DEFENCES
    """What the client does; the defences are listed above."""
    attacks: tuple[str, ...] = ("direct", "span", "subspace", "jigsaw", "activations", "lattice", "batch")
    """What the server tries; the attacks are listed above."""
    data: str = "embedded"
    """The clients' pictures: embedded (CIFAR-10), a folder of classes, or a folder that has one named val."""
    pictures: int = 10
    """Pictures to attack for each defence, spread over the data."""
    rounds: int = 1
    """Updates of every picture, for the attack rounds; between them the model trains on other pictures."""
    float_pictures: bool = False
    """Resize pictures with floats; default: with 8 bits, as clients do. Between grey levels lattice finds nothing."""
    prior: Path | None = None
    """Folder of public pictures for the attacker's prior; default: other pictures of the same data."""
    accuracy: int = 1000
    """Pictures on which accuracy and consistency are measured; 0 leaves them out (untrained models)."""
    pretrained: bool = False
    """Load the pretrained weights of timm:NAME."""
    weights: Path | None = None
    """File with the weights of the model, if there is one model: safetensors, .pt or .pth."""
    dtype: Literal["float32", "float64"] = "float32"
    """Precision of the client's gradients."""
    lpips: Path | None = None
    """File with AlexNet's weights for LPIPS, if they are not in torchvision's cache."""
    steps: int = 200
    """Steps of gradient matching."""
    restarts: int = 1
    """Further starts of gradient matching."""
    objective: Literal["cosine", "l2"] = "cosine"
    """How gradient matching compares gradients."""
    tv: float = 1.0
    """Weight of total variation in gradient matching."""
    edges: float = 1.0
    """Weight of steps across the borders of patches in gradient matching."""
    seed: int = 0
    """Seed of random weights, jigsaws, noise, searches and the bootstrap."""

    def check(self) -> None:
        """Refuse settings that make no sense; files and models are checked when they are opened."""
        for text in self.defences:
            parse(text).check_installed()
        if not self.models or not self.defences or not self.attacks or self.pictures < 1:
            raise InputError("an audit needs at least one model, one defence, one attack and one picture")
        if self.weights is not None and (self.pretrained or len(self.models) != 1):
            raise InputError("--weights are those of a single model, and not of --pretrained: name one model")
        whole("--accuracy", self.accuracy)
        check_rounds(self.rounds, self.attacks)
        whole("--seed", self.seed, most=2**53)  # the number of a batch is added to it
        whole("--steps", self.steps, least=1)
        whole("--restarts", self.restarts)
        number("--tv", self.tv, least=0)
        number("--edges", self.edges, least=0)

    def cell_settings(self) -> dict[str, Any]:
        return {name: str(getattr(self, name)) for name in CELL}

    def search_settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in SEARCH}
