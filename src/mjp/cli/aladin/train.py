"""Train ALADIN on pictures with captions. First the alignment head, then the vector that is distilled from it:

mjp aladin train --phase align --data FLICKR8K

mjp aladin train --phase distill --data FLICKR8K --teacher out/aladin-align

Tokens of the frozen backbone are computed once and kept in --cache. A run killed at any moment goes on when the same
command is given again.
"""

from mjp.aladin.training.config import AladinTraining, parse_arguments


def parse(arguments: list[str], description: str) -> AladinTraining:
    return parse_arguments(arguments, description=description)


def run(config: AladinTraining) -> None:
    from mjp.aladin.training.engine import train

    print(f"\nresult  {train(config)}")
