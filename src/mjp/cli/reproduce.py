"""Train and measure what a table of the paper needs, in miniature, with error bars and a verdict on every claim.

mjp reproduce finetune --data DIR --checkpoint deit_tiny_patch16_224.safetensors

mjp reproduce scratch --data CIFAR10 --only backbones --seeds 0 1 2

Finished runs are never repeated: rerun the same command to resume. --dry-run prints the runs and the expected time.
To share the work, give every machine a part (--shard 1/4, ...), copy the files of FOLDER/cells together, and run the
command with --collect.
"""

from mjp.common.results import Results
from mjp.reproduce.config import ReproduceConfig as Options


def run(options: Options) -> Results:
    from mjp.reproduce.command import reproduce

    return reproduce(options)
