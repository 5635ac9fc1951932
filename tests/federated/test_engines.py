"""The real engines, each in a process of its own: NVFlare's simulator, and Flower's under Ray on request."""

import importlib.util
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from mjp.common.results import read_results

EXAMPLES = Path(__file__).parents[2] / "examples"
SUPERLINK = "--insecure --simulation --isolation subprocess --host 127.0.0.1 --port 39091"  # where flwr looks for it
REQUIRE = "MJP_REQUIRE_NVFLARE"  # set where NVFlare must be there: then its absence is a failure


def environment(folder: Path) -> dict[str, str]:
    source = EXAMPLES.parent / "src"
    path = os.pathsep.join(filter(None, (str(source), os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, "PYTHONPATH": path, "HOME": str(folder), "OMP_NUM_THREADS": "1"}


def superlink_is_up() -> bool:
    try:
        with urllib.request.urlopen("http://127.0.0.1:39091/health", timeout=1):
            return True
    except OSError:
        return False


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(1)


def test_nvflare_is_there_where_it_must_be() -> None:
    assert importlib.util.find_spec("nvflare") is not None or not os.environ.get(REQUIRE)


@pytest.mark.skipif(importlib.util.find_spec("nvflare") is None, reason="NVFlare is not installed: mjp[nvflare]")
def test_the_job_runs_in_nvflares_simulator(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "nvflare" / "job.py"), "--defence", "none", "--rounds", "1"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "out")],
        env=environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=290,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    scenario = read_results(tmp_path / "out").body["scenarios"]["none"]
    assert (scenario["updates"], scenario["audited"], scenario["faults"]) == (2, 2, 0)
    assert scenario["exposed"] >= 1
    assert scenario["accuracy"][0][1] > 0.5
    assert (tmp_path / "out" / "report.html").is_file()


@pytest.mark.skipif(
    not os.environ.get("MJP_FLOWER_RUN") or importlib.util.find_spec("flwr") is None,
    reason="starts a SuperLink and Ray: install mjp[flower] and set MJP_FLOWER_RUN=1",
)
def test_the_app_runs_under_flower(tmp_path: Path) -> None:
    home = {"FLWR_HOME": str(tmp_path / "flwr"), "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1"}
    programs = Path(sys.executable).parent
    home["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"
    environ = {**environment(tmp_path), **home}
    config = f'num-server-rounds=1 leak-audit.defence="none" accuracy=20 out="{tmp_path / "out"}"'
    with open(tmp_path / "superlink.log", "w") as log:
        superlink = subprocess.Popen(
            [str(programs / "flower-superlink"), *SUPERLINK.split()],
            env=environ,
            cwd=tmp_path,
            stdout=log,
            stderr=log,
        )
    try:
        wait_for(superlink_is_up)
        run = [str(programs / "flwr"), "run", str(EXAMPLES / "flower"), "--stream", "--run-config", config]
        done = subprocess.run(run, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=280)
        assert (tmp_path / "out" / "results.json").is_file(), done.stdout[-3000:] + done.stderr[-3000:]
    finally:
        superlink.terminate()
        superlink.wait(20)
    scenario = read_results(tmp_path / "out").body["scenarios"]["none"]
    assert (scenario["audited"], scenario["faults"]) == (2, 0)
