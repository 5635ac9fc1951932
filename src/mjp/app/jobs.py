"""Attacks in a process of their own: one at a time, a short queue, progress, cancelling.

A run of attacks cannot be interrupted from within, so the process that runs it is killed and another one takes its
place. The pages stay quick meanwhile, and an attack that takes all memory ends alone.
"""

import os
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from multiprocessing.process import BaseProcess
from threading import Condition, Thread
from time import monotonic
from typing import Any, Literal

from mjp.common.errors import InputError

State = Literal["waiting", "running", "done", "cancelled", "failed"]

QUEUE = 4  # runs that may wait
FINISHED = 8  # runs whose results are remembered
MAX_SECONDS = 1800.0  # of a run
ABANDONED = 180.0  # seconds without a look from any page; a hidden tab may look only once a minute
TICK = 0.1  # seconds between looks at a run
ENDED = "the attacks ended unexpectedly; perhaps there was not enough memory"


@dataclass
class Job:
    """A run and what has come of it; `messages` grows while it runs."""

    name: str
    question: Any
    state: State = "waiting"
    messages: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None
    looked_at: float = field(default_factory=monotonic)
    began: float = 0.0
    seconds: float = 0.0

    @property
    def is_over(self) -> bool:
        return self.state not in ("waiting", "running")

    @property
    def is_abandoned(self) -> bool:
        return monotonic() - self.looked_at > ABANDONED


class Jobs:
    """The queue, and the thread that watches the process. Safe for threads.

    `work(connection, *arguments)` is what the process does: it receives questions and sends messages for each, the
    last of which is {"done": True} or {"error": SENTENCE}.
    """

    def __init__(self, work: Callable[..., None], *arguments: Any) -> None:
        self.work = work
        self.arguments = arguments
        self.changed = Condition()
        self.jobs: OrderedDict[str, Job] = OrderedDict()
        self.closed = False
        self.thread = Thread(target=self._watch, daemon=True)
        self.thread.start()

    def submit(self, question: Any) -> Job:
        with self.changed:
            if sum(job.state == "waiting" and not job.is_abandoned for job in self.jobs.values()) >= QUEUE:
                raise InputError(f"{QUEUE} runs are waiting already: wait for one, or cancel it")
            job = Job(secrets.token_urlsafe(12), question)
            self.jobs[job.name] = job
            over = [name for name, other in self.jobs.items() if other.is_over]
            for name in over[: max(0, len(over) - FINISHED)]:
                del self.jobs[name]
            self.changed.notify_all()
            return job

    def find(self, name: str) -> Job:
        with self.changed:
            if name not in self.jobs:
                raise InputError("this run is not in memory any more: start it again")
            return self.jobs[name]

    def watch(self, name: str) -> Job:
        """The same for a page that follows the run: one that nobody follows ends, so that others get their turn."""
        job = self.find(name)
        job.looked_at = monotonic()
        return job

    def ahead(self, job: Job) -> int:
        """How many runs come before this one."""
        with self.changed:
            names = [name for name, other in self.jobs.items() if not other.is_over]
            return names.index(job.name) if job.name in names else 0

    def cancel(self, job: Job) -> None:
        with self.changed:
            if not job.is_over:
                job.state = "cancelled"
            self.changed.notify_all()

    def close(self) -> None:
        with self.changed:
            self.closed = True
            self.changed.notify_all()
        self.thread.join()

    def _watch(self) -> None:
        worker = Worker(self.work, self.arguments)
        try:
            while (job := self._next()) is not None:
                self._follow(job, worker)
                if not worker.is_idle:  # cancelled, too slow or dead
                    worker.stop()
                    worker = Worker(self.work, self.arguments)
        finally:
            worker.stop()

    def _next(self) -> Job | None:
        """The oldest run that waits; None when the page is closed."""
        with self.changed:
            while not self.closed:
                for job in self.jobs.values():
                    if job.state == "waiting" and job.is_abandoned:
                        job.state = "cancelled"
                    elif job.state == "waiting":
                        job.state = "running"
                        job.began = monotonic()
                        return job
                self.changed.wait()
            return None

    def _follow(self, job: Job, worker: "Worker") -> None:
        """Collect the messages of a run until it is over; a worker that is still busy then is not used again."""
        worker.ask(job.question)
        while not job.is_over and not self.closed:
            message = worker.listen(TICK)
            job.seconds = monotonic() - job.began
            if message is None:
                if not worker.process.is_alive():
                    self._end(job, "failed", ENDED)
                elif job.is_abandoned:
                    self._end(job, "cancelled")
                elif job.seconds > MAX_SECONDS:
                    self._end(job, "failed", f"the run took longer than {MAX_SECONDS / 60:.0f} minutes")
            elif "done" in message:
                self._end(job, "done")
            elif "error" in message:
                self._end(job, "failed", message["error"])
            else:
                job.messages.append(message)

    def _end(self, job: Job, state: State, error: str | None = None) -> None:
        with self.changed:
            if not job.is_over:  # it may have been cancelled in between
                job.error = error
                job.state = state


class Worker:
    """The process, and our end of the pipe to it."""

    def __init__(self, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        context = get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process: BaseProcess = context.Process(target=_work, args=(work, other, *arguments), daemon=True)
        self.process.start()
        other.close()
        self.is_idle = True

    def ask(self, question: Any) -> None:
        self.is_idle = False
        self.pipe.send(question)

    def listen(self, seconds: float) -> dict[str, Any] | None:
        """The next message, if one comes within this time."""
        try:
            message = self.pipe.recv() if self.pipe.poll(seconds) else None
        except (EOFError, OSError):
            self.process.join(seconds)
            return None
        if message is not None and message.keys() & {"done", "error"}:
            self.is_idle = True
        return message

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _work(work: Callable[..., None], *arguments: Any) -> None:
    """What the process does: the work, and it ends with the page."""
    Thread(target=_end_with_page, daemon=True).start()
    work(*arguments)


def _end_with_page() -> None:
    """A page that is killed cannot end this process, which would hold a picture until its attack is over."""
    if (page := parent_process()) is not None:
        page.join()
        os._exit(1)
