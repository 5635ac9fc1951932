"""The skeleton of a training run: folder, lock, resume, checkpoints, log and progress. The maths is the subclass's.

    with self.opened():                                          a new run, or the one in the folder
        for epoch in self.epochs():                              from where it stopped
            for batch in self.steps(epoch, self.batches(epoch)): logs, and saves when it is time
                self.add(self.update(batch))                     losses of one optimizer step
            if self.epoch_is_complete:
                ...                                              evaluate, log, save

Nothing random is kept between steps (see common/seeds.py), so a run killed at any moment resumes bit-exactly.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Generic, NoReturn, Protocol, TypeVar

import torch

from mjp.common.distributed import World
from mjp.common.errors import InputError, first_line
from mjp.common.files import write_atomically
from mjp.common.progress import Progress, duration, say
from mjp.common.runs.checkpoint import find_checkpoint, load_checkpoint, save_checkpoint
from mjp.common.runs.lock import hold_folder
from mjp.common.runs.log import Log
from mjp.common.runs.recipe import FREE_AFTER_BAD_STEP, FREE_TO_CHANGE, changed_settings
from mjp.common.validate import number, whole

TIMED_STEPS = 10  # after these the time per step is announced


class RunSettings(Protocol):
    """What the skeleton reads of a configuration."""

    epochs: int
    resume: Path | None
    stop_after: int | None
    log_every: int
    checkpoint_minutes: float

    @property
    def folder(self) -> Path: ...
    def to_yaml(self) -> str: ...


Settings = TypeVar("Settings", bound=RunSettings)
Batch = TypeVar("Batch")


class ResumableRun(ABC, Generic[Settings]):
    """A training run that can be killed at any moment and resumed to the same bits."""

    steps_per_epoch: int

    def __init__(
        self, config: Settings, world: World, *, free: frozenset[str] = FREE_TO_CHANGE, tensorboard: bool = False
    ) -> None:
        self.config, self.world, self.folder, self.free = config, world, config.folder, free
        self.step = 0  # optimizer steps made
        self.sums: dict[str, float] = {}  # of what the steps of the current epoch gave
        self.means: dict[str, Any] = {}  # as last logged
        self._refuse_other_settings(self.newest_checkpoint())  # before anything is computed
        self.log = Log(self.folder, tensorboard=tensorboard and world.leads)

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """What a checkpoint holds besides the position in the run; all processes are asked."""

    @abstractmethod
    def load_state(self, state: dict[str, Any]) -> None:
        """Take over what `state` gave."""

    @abstractmethod
    def readings(self, steps: int, seconds: float, waited: float) -> dict[str, Any]:
        """What is logged besides the means of the losses, after so many steps in so much time."""

    @property
    def last_step(self) -> int:
        return self.config.epochs * self.steps_per_epoch

    @property
    def is_complete(self) -> bool:
        return self.step >= self.last_step

    @property
    def epoch_is_complete(self) -> bool:
        return self.step % self.steps_per_epoch == 0

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Start a new run in the folder, or continue the one that is there; no other process can do so meanwhile."""
        with hold_folder(self.folder) if self.world.leads else nullcontext(True) as held:
            if not self.world.agree(held):
                raise InputError(f"another process is training in {self.folder}: wait for it, or give another --out")
            self._open()
            yield

    def epochs(self) -> Iterator[int]:
        """Epochs from the current step on, until the last one or --stop-after; then saves what is not yet saved."""
        while self.step < self._end:
            if self.epoch_is_complete:
                self.sums = {}
            yield self.step // self.steps_per_epoch
        if not self.is_complete:
            self.save()

    def steps(self, epoch: int, batches: Iterator[Batch]) -> Iterator[Batch]:
        """The batches of the rest of an epoch. Behind each: count, log, and write a checkpoint when it is time."""
        first = epoch * self.steps_per_epoch
        resumed_at, began, waited = self.step, time.perf_counter(), 0.0
        saved = time.monotonic()
        title = f"epoch {epoch + 1}/{self.config.epochs}"
        quiet = not self.world.leads
        with Progress(self.steps_per_epoch, title, initial=self.step - first, quiet=quiet) as progress:
            while self.step < min(first + self.steps_per_epoch, self._end):
                asked = time.perf_counter()
                batch = next(batches)
                waited += time.perf_counter() - asked
                yield batch
                self.step += 1
                if self.step % self.config.log_every == 0 or self.epoch_is_complete:
                    done, seconds = self.step - resumed_at, time.perf_counter() - began
                    losses = {name: total / (self.step - first) for name, total in self.sums.items()}
                    self.means = losses | self.readings(done, seconds, waited)
                    self.write("step", **self.means)
                progress.advance(loss=f"{self.sums['train_loss'] / (self.step - first):.4g}")
                if self.step - resumed_at == TIMED_STEPS:
                    self._announce_speed((time.perf_counter() - began) / TIMED_STEPS)
                # the last step of an epoch is saved after its evaluation, or a kill in between would lose that
                due = time.monotonic() - saved > 60 * self.config.checkpoint_minutes
                if not self.epoch_is_complete and self.world.agree(due):
                    self.save()
                    saved = time.monotonic()

    def add(self, losses: dict[str, float]) -> None:
        for name, value in losses.items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    def write(self, kind: str, **values: Any) -> None:
        if self.world.leads:
            self.log.write(kind, self.step, **values)

    def save(self, *, bad_step: bool = False) -> Path:
        """A checkpoint of this moment; only the leading process writes."""
        state = {
            **self.state(),
            "step": self.step,
            "sums": self.sums,
            "world": self.world.size,
            "threads": torch.get_num_threads(),
            "bad_step": bad_step,
        }
        if self.world.leads:
            save_checkpoint(self.folder / "checkpoints", state)
        self.world.wait()
        return self.folder / "checkpoints" / "last.pt"

    def stop_at_bad_step(self, loss: float) -> NoReturn:
        """Save the last good step and say what to do. All processes come here together."""
        path = self.save(bad_step=True)
        raise InputError(
            f"the loss became {loss:.4g}, or its gradient was not finite, in step {self.step + 1}. The last good step "
            f"is saved in {path}: rerun the command with a lower --lr, a longer --warmup-epochs or a lower --clip-grad"
        )

    @property
    def _end(self) -> int:
        stop = self.config.stop_after
        return self.last_step if stop is None else min(self.last_step, stop)

    def newest_checkpoint(self) -> Path | None:
        """What the run continues from, if anything."""
        return self.config.resume or find_checkpoint(self.folder / "checkpoints")

    def _refuse_other_settings(self, checkpoint: Path | None) -> dict[str, Any]:
        """Compare the settings with those of the run in the folder; what a bad step allowed to change."""
        path = self.folder / "config.yaml"
        if checkpoint is None or not path.exists():
            return {}
        changes = changed_settings(path, self.config.to_yaml(), self.free)
        if changes and not (changes.keys() <= FREE_AFTER_BAD_STEP and load_checkpoint(checkpoint).get("bad_step")):
            raise InputError(
                f"{self.folder} holds a run with other settings ({', '.join(changes)}): give the same ones to "
                "continue it, or another --out"
            )
        return changes

    def _open(self) -> None:
        checkpoint = self.newest_checkpoint()
        changes = self._refuse_other_settings(checkpoint)
        if checkpoint is not None:
            self._restore(checkpoint)
        if self.world.leads:
            text = self.config.to_yaml()
            write_atomically(self.folder / "config.yaml", lambda path: path.write_text(text, encoding="utf-8"))
            self.log.rewind(self.step)
            if changes:
                self.write("settings", **changes)
            if checkpoint is not None:
                print(f"continuing {self.folder} at step {self.step} from {checkpoint}", flush=True)
        self.world.wait()

    def _restore(self, path: Path) -> None:
        state = load_checkpoint(path)
        try:
            self.load_state(state)
            self.step = whole(f"{path}: step", state["step"], most=self.last_step)
            self.sums = {str(name): number(f"{path}: {name}", total) for name, total in state["sums"].items()}
            processes = whole(f"{path}: world", state["world"])
            threads = whole(f"{path}: threads", state["threads"])
        except InputError:
            raise
        except Exception as error:  # whatever modules and optimizers say about weights that are not theirs
            raise InputError(f"{path} belongs to another model: {first_line(error)}") from error
        if processes != self.world.size:
            raise InputError(
                f"{path} is from a run of {processes} processes, this is {self.world.size}: for the same steps use the "
                "same number"
            )
        if threads != torch.get_num_threads() and self.world.leads:
            print(
                f"the run used {threads} threads, this process has {torch.get_num_threads()}: the last bits may differ "
                f"from an uninterrupted run (OMP_NUM_THREADS={threads} restores the count)"
            )

    def _announce_speed(self, seconds: float) -> None:
        left = self._end - self.step
        if self.world.leads and left:
            say(f"{seconds:.3g} s per step: about {duration(seconds * left)} for the other {left:,} steps")
