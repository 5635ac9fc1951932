"""How strong a corruption is: one row of parameters for each severity, by size of the picture. No torch."""

import math
from dataclasses import dataclass

SEVERITIES = (1, 2, 3, 4, 5)
SMALL, LARGE = 32, 224  # sides in pixels that the two tables are for: CIFAR-10-C and ImageNet-C

Row = tuple[float, ...]


@dataclass(frozen=True)
class Strengths:
    """Five rows each, the same number of parameters in all of them."""

    small: tuple[Row, ...]
    large: tuple[Row, ...]

    def at(self, severity: int, side: int) -> Row:
        """The row for a picture of that side: linear in log(side) between the tables, constant beyond them."""
        share = min(max(math.log(side / SMALL) / math.log(LARGE / SMALL), 0.0), 1.0)
        pairs = zip(self.small[severity - 1], self.large[severity - 1], strict=True)
        return tuple(small + share * (large - small) for small, large in pairs)
