"""Gradient matching by an attacker who ignores the mask: no closed-form start, every slot with its own position.

The published attacks are of this kind. The gap to the informed attack shows how much a defence relies on ignorance.
"""

from mjp.privacy.attacks import matching
from mjp.privacy.server.view import Reconstruction, View

NAME = "matching-blind"
TITLE = "gradient matching (blind to the mask)"
HELP = "matching without closed-form starts and without the mask, as published attacks do it"
NEEDS = ()


def run(view: View) -> Reconstruction:
    return matching.run(view, blind=True)
