"""Gradient matching by an attacker who does not know of the mask: no closed-form start, every position its own.

The published attacks are of this kind. Beside the informed one it shows what a defence owes to ignorance.
"""

from mjp.privacy.attacks import matching
from mjp.privacy.server.view import Reconstruction, View

NAME, TITLE = "matching-blind", "gradient matching (blind to the mask)"


def run(view: View) -> Reconstruction:
    return matching.run(view, blind=True)
