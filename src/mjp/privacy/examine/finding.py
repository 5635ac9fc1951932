"""Finding: what one attack made of one update, and what may be said about it."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

from torch import Tensor

from mjp.privacy.metrics import Score

GUESS = "guess"  # the name of the data-free guess in every table

Outcome = Literal["explains", "equations hold", "explains in part", "unverified", "not recovered", "refused"]


class Verdict(NamedTuple):
    """What an attacker can tell about a reconstruction without the pictures.

    Attributes:
        outcome: Machine-readable. `explains`: the gradient of the picture is the update. `equations hold`: those of a
            closed form hold to several digits. `explains in part`: parts of the picture may be wrong. `unverified`:
            there is a picture, but it cannot be checked. `not recovered`: the picture does not explain the update.
            `refused`: the attack cannot run on this update. None of these means that the update is safe.
        short: A few words, for a caption.
        sentence: The same as a sentence.
    """

    outcome: Outcome
    short: str
    sentence: str


@dataclass(frozen=True)
class Finding:
    """What one attack made of one update.

    Attributes:
        attack: Its name; `guess` for the data-free guess.
        pictures: The reconstruction, (B, 3, H, W) in [0, 1]; None if the attack refused.
        refused: Why the attack cannot run on this update; None if it ran.
        verdict: What an attacker can tell about the reconstruction; None for the guess.
        scores: {setting: one Score per picture}, where the pictures are at hand to compare with. Settings: `a` nothing
            was shuffled; `b` compared with the shuffled picture; `c` with the picture behind the jigsaw.
        seconds: How long the attack took.
        details: What the attack reports: condition number, match, open dimensions, …
        picture: The name of the picture, where the pictures are at hand.
        defence: The defence under which the update was made.
        update: The name of the update, where it came from a file.
    """

    attack: str
    pictures: Tensor | None
    refused: str | None = None
    verdict: Verdict | None = None
    scores: dict[str, list[Score]] = field(default_factory=dict)
    seconds: float = 0.0
    details: dict[str, Any] = field(default_factory=dict)
    picture: str = ""
    defence: str = ""
    update: str = ""

    def to_dict(self) -> dict[str, Any]:
        """All but the pictures and the verdict, as cells.jsonl and results.json have it."""
        return {
            "attack": self.attack,
            "refused": self.refused,
            "seconds": round(self.seconds, 3),
            "facts": self.details,
            "scores": {setting: [asdict(score) for score in scores] for setting, scores in self.scores.items()},
        }
