"""Settings of `mjp federate`. No torch: the command line reads this."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from mjp.common.errors import InputError
from mjp.common.validate import number, whole
from mjp.privacy.combination import parse

DEFENCES = (
    *("none", "mjp:0.09", "mjp:0.27", "mjp:0.5", "mjp-sticky:0.27", "dp:0.1"),
    *("batch:8", "mjp:0.27+batch:8", "batch:16+fedavg:8"),
)


@dataclass(kw_only=True)
class FederateSettings:
    model: str = "mini-cifar10-mjp"
    """The model that all clients start from: a shipped name, a folder, timm:NAME (random weights)."""
    defences: tuple[str, ...] = ()
    """One training run for each: what the clients do, with batch:B for the pictures in a step and fedavg:K for the
    local steps in a round. Default: plain, MJP at three γ, sticky jigsaws, DP (if Opacus is installed), batches."""
    clients: int = 3
    """How many; the first has pictures for one step only, which therefore take part in every round."""
    rounds: int = 4
    """Rounds of training."""
    lr: float = 0.001
    """Learning rate of the local steps."""
    alpha: float = 0.5
    """Concentration of the Dirichlet distribution that divides the embedded pictures among the clients: small for
    clients with few classes each."""
    attacks: tuple[str, ...] = ("direct", "span", "subspace")
    """What is tried on every update; mjp attack --help lists the attacks."""
    photograph: Path | None = None
    """A picture of your own for the first client; its class is what the model says."""
    accuracy: int = 500
    """Embedded validation pictures on which the global model is measured after every round; 0 for none."""
    leak_log: bool = True
    """Keep what the server was sent in OUT/leak-log, for mjp attack-update and for the attack on several rounds."""
    max_megabytes: float = 500
    """Bound of the leak log of every defence; the oldest rounds go first."""
    seed: int = 0
    """Seed of the division, the simulated clients' keys, and random weights."""

    def __post_init__(self) -> None:
        whole("--clients", self.clients, least=1, most=100)
        whole("--rounds", self.rounds, least=1, most=10_000)
        whole("--accuracy", self.accuracy)
        number("--lr", self.lr, least=1e-12, most=1000)
        number("--max-megabytes", self.max_megabytes, least=1)
        if len({parse(text).canonical for text in self.defences}) < len(self.defences):
            raise InputError("--defences names a defence twice")

    def scenarios(self) -> tuple[str, ...]:
        """The defences to run."""
        if self.defences:
            return self.defences
        return tuple(text for text in DEFENCES if not text.startswith("dp:") or find_spec("opacus") is not None)
