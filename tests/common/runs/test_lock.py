"""A folder has one worker at a time, and a killed one leaves no lock behind."""

import os
import signal
from pathlib import Path

from mjp.common.runs.lock import hold_folder
from processes import start


def test_a_folder_is_held_once_and_free_afterwards(tmp_path: Path) -> None:
    with hold_folder(tmp_path) as first, hold_folder(tmp_path) as second:
        assert (first, second) == (True, False)
    with hold_folder(tmp_path) as third:
        assert third


def test_a_new_folder_that_stays_empty_is_removed(tmp_path: Path) -> None:
    with hold_folder(tmp_path / "a" / "run"):
        assert (tmp_path / "a" / "run").is_dir()
    assert not (tmp_path / "a" / "run").exists()
    with hold_folder(tmp_path / "b"):
        (tmp_path / "b" / "file").touch()
    assert (tmp_path / "b" / "file").exists()


def fork_and_die_task(folder: Path) -> None:
    """Hold a folder, fork a child that lives on, and die."""
    with hold_folder(folder) as held:
        assert held
        if os.fork() == 0:
            while not (folder / "done").exists():
                pass
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_child_of_a_killed_worker_does_not_keep_the_lock(tmp_path: Path) -> None:
    process = start(fork_and_die_task, tmp_path)
    process.join()
    try:
        with hold_folder(tmp_path) as held:
            assert held
    finally:
        (tmp_path / "done").touch()
