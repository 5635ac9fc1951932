"""Federated training in one process: accuracy over the rounds, and what every update gave away, for several defences.

Each defence is a training run of its own, from the same weights, on the embedded pictures. Every update is audited as
the adapters for Flower and NVFlare do it. The first client has pictures for one step only, so that they take part in
every round. A killed run continues after its last finished round: rerun the same command.

Example: mjp federate --defences none mjp:0.27 mjp:0.27+batch:8 --clients 2 --rounds 3
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mjp.federated.config import FederateSettings

if TYPE_CHECKING:
    from mjp.common.results import Results

FLOWER = """
The same with Flower itself, on real machines:
  pip install '.[flower]'
  export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1
  cd examples/flower
  flwr federation simulation-config @none/default local --num-supernodes {clients}
  flwr run . --stream --run-config 'leak-audit.model="{model}" leak-audit.defence="{defence}"
    num-server-rounds={rounds} lr={lr} alpha={alpha} seed={seed}'
docs/federated.md explains it, and the same for NVFlare."""


@dataclass(kw_only=True)
class Options(FederateSettings):
    out: Path = Path("out/federate")
    """Folder for results.json, rounds.png, leaks.png and report.html."""


def description() -> str:
    from mjp.cli.attack_options import describe

    return describe(__doc__)


def run(options: Options) -> "Results":
    from mjp.common.files import check_folder
    from mjp.federated.run import federate

    check_folder(options.out)
    results = federate(options, options.out, options)
    print(f"\npage     {options.out / 'report.html'}\nfigures  {options.out / 'results.json'}")
    print(FLOWER.format(**{**vars(options), "defence": options.scenarios()[-1]}))
    return results
