"""A job that runs in NVFlare's simulator: python examples/nvflare/job.py --out out/nvflare

Every site trains a small ViT with MJP on its share of the embedded pictures; a filter audits every update before it
leaves, and with --limit withholds it. OUT/report.html shows what leaked. In production a site does not rely on the job
for this: its own local/privacy.json names the same filters (privacy.json beside this file).
"""

import argparse
from pathlib import Path

from nvflare.recipe import SimEnv

from mjp.federated.nvflare import AuditLog, KeepWeights, LeakAudit, TolerantFedAvgRecipe, finish_run


def main(arguments: list[str] | None = None) -> Path:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="mini-cifar10-mjp")
    parser.add_argument("--defence", default="mjp:0.27")
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--limit", type=float, default=-1.0, help="withhold updates with a better match than this")
    parser.add_argument("--timeout", type=int, default=600, help="seconds that a round waits for its sites")
    parser.add_argument("--leak-log", default="", help="folder: keep what the server was sent, for mjp attack-update")
    parser.add_argument("--out", type=Path, default=Path("out/nvflare"))
    options = parser.parse_args(arguments)
    out = options.out.resolve()
    if len(f"{out} {options.model}".split()) > 2:
        parser.error("--out and --model must not contain spaces: NVFlare splits the arguments of a script at them")

    training = f"--model {options.model} --defence {options.defence} --clients {options.clients} --keys {out / 'keys'}"
    recipe = TolerantFedAvgRecipe(  # one site that fails or withholds its update does not stop the others
        name="leak-audit",
        model={
            "class_path": "mjp.federated.nvflare.model.SharedModel",
            "args": {"model": options.model, "defence": options.defence},
        },
        min_clients=options.clients,
        num_rounds=options.rounds,
        task_timeout=options.timeout,
        train_script=str(Path(__file__).with_name("client.py")),
        train_args=training,
    )
    audit = {"model": options.model, "defence": options.defence, "limit": options.limit}
    recipe.add_client_input_filter(KeepWeights(), tasks=["train"])
    recipe.add_client_output_filter(LeakAudit(**audit), tasks=["train"])
    recipe.add_server_output_filter(KeepWeights(), tasks=["train"])
    updates = str(Path(options.leak_log).resolve()) if options.leak_log else ""
    log = AuditLog(folder=str(out), leak_log=updates, model=options.model, defence=options.defence)
    recipe.add_server_input_filter(log, tasks=["train"])
    (out / "results.json").unlink(missing_ok=True)  # a job that fails leaves no results,
    log.journal.reset()  # nor does it pass off those of an earlier one as its own
    recipe.execute(SimEnv(num_clients=options.clients, num_threads=options.clients, workspace_root=str(out / "work")))
    finish_run(out, rounds=options.rounds)
    print(f"page  {out / 'report.html'}")
    return out


if __name__ == "__main__":
    main()
