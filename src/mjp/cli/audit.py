"""What leaks, for several models and defences: accuracy and consistency beside the best attack's score.

Every number is a mean over pictures with a 95 % bootstrap interval; an attack is worth what it gains over the data-free
guess (the mean of other pictures). Masked and unmasked patches are scored apart. A killed audit resumes: rerun the same
command with the same --out.

Example: mjp audit --models mini-cifar10-plain mini-cifar10-mjp --defences none mjp:0.27 --attacks direct subspace
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mjp.cli.attack_options import describe
from mjp.privacy.audit.settings import AuditSettings

if TYPE_CHECKING:
    from mjp.common.results import Results


@dataclass
class Options(AuditSettings):
    out: Path = Path("out/audit")
    """Folder for cells.jsonl, results.json, audit.csv and audit.png."""


def description() -> str:
    return describe(__doc__)


def run(options: Options) -> "Results":
    from mjp.privacy.audit.run import audit

    return audit(options, options.out, options)
