"""Runs in a process of their own: order, cancelling, a process that dies, a queue that is full."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

import pytest

import mjp
from mjp.app import jobs as module
from mjp.app.jobs import Job, Jobs


def work(connection: Connection) -> None:
    """Answers "N" with N messages, sleeps over "sleep" and "who", dies over "die", refuses "bad"."""
    while True:
        match connection.recv():
            case "sleep":
                connection.send({"number": 0})
                time.sleep(600)
            case "who":
                connection.send({"pid": os.getpid()})
                time.sleep(600)
            case "die":
                os._exit(1)
            case "bad":
                connection.send({"error": "this cannot be attacked"})
            case count:
                for number in range(int(count)):
                    connection.send({"number": number})
                connection.send({"done": True})


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    queue = Jobs(work)
    yield queue
    queue.close()


def wait(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.02)


def finished(jobs: Jobs, question: str) -> Job:
    job = jobs.submit(question)
    wait(lambda: job.is_over)
    return job


def test_messages_arrive_in_order(jobs: Jobs) -> None:
    job = finished(jobs, "5")
    assert (job.state, job.error) == ("done", None)
    assert [message["number"] for message in job.messages] == [0, 1, 2, 3, 4]
    assert jobs.find(job.name) is job


def test_a_refusal_and_a_dead_process_are_told_and_the_next_run_works(jobs: Jobs) -> None:
    assert finished(jobs, "bad").error == "this cannot be attacked"
    dead = finished(jobs, "die")
    assert dead.state == "failed"
    assert "memory" in str(dead.error)
    assert finished(jobs, "1").state == "done"


def test_one_runs_others_wait_and_both_can_be_cancelled(jobs: Jobs) -> None:
    long, waiting, last = jobs.submit("sleep"), jobs.submit("1"), jobs.submit("2")
    wait(lambda: long.messages)
    assert [job.state for job in (long, waiting, last)] == ["running", "waiting", "waiting"]
    assert [jobs.ahead(job) for job in (long, waiting, last)] == [0, 1, 2]
    jobs.cancel(waiting)
    jobs.cancel(long)
    wait(lambda: last.is_over)
    assert [job.state for job in (long, waiting, last)] == ["cancelled", "cancelled", "done"]
    assert waiting.messages == []
    assert len(last.messages) == 2


def test_the_queue_is_short_and_old_runs_are_forgotten(jobs: Jobs) -> None:
    long = jobs.submit("sleep")
    wait(lambda: long.messages)
    waiting = [jobs.submit("1") for _ in range(module.QUEUE)]
    with pytest.raises(mjp.InputError, match="are waiting already"):
        jobs.submit("1")
    jobs.cancel(long)
    wait(lambda: all(job.is_over for job in waiting))
    for _ in range(module.FINISHED + 1):
        finished(jobs, "1")
    with pytest.raises(mjp.InputError, match="not in memory"):
        jobs.find(long.name)


def test_a_run_that_takes_too_long_is_ended(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SECONDS", 0.3)
    job = finished(jobs, "sleep")
    assert job.state == "failed"
    assert "longer than" in str(job.error)


def test_a_run_that_nobody_follows_ends_and_the_next_one_gets_its_turn(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    long, forgotten, last = jobs.submit("sleep"), jobs.submit("1"), jobs.submit("1")
    wait(lambda: long.messages)
    monkeypatch.setattr(module, "ABANDONED", 0.5)

    def last_is_over() -> bool:
        return jobs.watch(last.name).is_over

    wait(last_is_over)
    assert [job.state for job in (long, forgotten, last)] == ["cancelled", "cancelled", "done"]


HOLD = """
import time
from app.test_jobs import wait, work
from mjp.app.jobs import Jobs

job = Jobs(work).submit("who")
wait(lambda: job.messages)
print(job.messages[0]["pid"], flush=True)
time.sleep(600)
"""


def test_the_process_ends_with_a_page_that_is_killed() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True, env=environment) as page:
        assert page.stdout is not None
        worker = int(page.stdout.readline())
        page.kill()

    def is_gone() -> bool:
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return True
        return False

    wait(is_gone)
