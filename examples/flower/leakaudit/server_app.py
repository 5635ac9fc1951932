"""The ServerApp: FedAvg, with a journal of the audits. A run that was killed continues where its folder says."""

from pathlib import Path
from typing import Any

from flwr.app import MetricRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from leakaudit.task import shared_model
from mjp.federated.data import accuracy_of, validation_pictures
from mjp.federated.flower import AuditedStrategy, arrays_of

app = ServerApp()


@app.main()
def main(grid: Any, context: Any) -> None:
    config = context.run_config
    subject, network = shared_model(config)
    pictures = validation_pictures(int(config["accuracy"]), subject.size)

    def evaluate(server_round: int, arrays: Any) -> Any:
        return MetricRecord({"accuracy": accuracy_of(network, arrays.to_torch_state_dict(), subject, pictures)})

    settings = {name: config[name] for name in ("lr", "alpha", "seed")}
    settings |= {"model": config["leak-audit.model"], "defence": config["leak-audit.defence"]}
    strategy = AuditedStrategy(
        FedAvg(fraction_evaluate=0.0),
        Path(str(config["out"])),
        settings=settings,
        leak_log=Path(str(config["leak-log"])) if config["leak-log"] else None,
    )
    strategy.start(
        grid,
        arrays_of(network.weights()),
        num_rounds=int(config["num-server-rounds"]),
        timeout=float(config["timeout"]),
        evaluate_fn=evaluate,
    )
    print(f"page  {(strategy.folder / 'report.html').resolve()}")
