"""Train ALADIN on pictures with captions. First the alignment head, then the vector that is distilled from it:

mjp aladin train --phase align --data FLICKR8K

mjp aladin train --phase distill --data FLICKR8K --teacher out/aladin-align

Tokens of the frozen backbone are computed once and cached in --cache; --train-backbone computes them in every step and
trains the backbone too. Under torchrun a step takes --batch-size pictures per process. Interrupted runs resume
bit-exactly: rerun the same command.
"""

from mjp.aladin.training.config import AladinTraining, parse_arguments
from mjp.common.results import Results


def parse(arguments: list[str], description: str) -> AladinTraining:
    return parse_arguments(arguments, description=description)


def run(config: AladinTraining) -> Results:
    from mjp.aladin.training.engine import train
    from mjp.common.results import make_results

    folder = train(config)
    print(f"\nresult  {folder}")
    return make_results("aladin train", config, {"folder": folder})
