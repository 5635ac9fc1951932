"""Training in three phases: `align` the tokens, `distill` a vector from them, or both `joint`ly.

    run = AladinRun(config)        data, features on disk, model, optimizer
    run.train()                    epochs of steps; evaluates on dev, logs, writes checkpoints

Folder, resume, checkpoints and log are those of every training run: common/runs/resumable.py. Whatever is random is
seeded anew from (seed, step): interrupted runs resume bit-exactly. Under torchrun every process embeds its own
pictures and captions, and the loss is that of all of them together (cached_step.py).
"""

import math
from collections.abc import Iterator
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

import torch
from timm.utils import ModelEmaV3
from torch import Tensor, nn

from mjp.aladin.data.captions import Captioned, load_captions, training_splits
from mjp.aladin.data.corpus import Corpus, TeacherTokens, some_vectors
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.reference import save_reference
from mjp.aladin.training.build import build_optimizer, fresh_model, learning_rate, student_of_teacher
from mjp.aladin.training.cached_step import Chunk, cached_backward, sum_gradients
from mjp.aladin.training.channel import train_channel
from mjp.aladin.training.compared import Compared, Sides
from mjp.aladin.training.config import FREE_TO_CHANGE, AladinTraining
from mjp.aladin.training.dev import dev_recall
from mjp.aladin.training.embed import Embedder
from mjp.aladin.training.guide import Guide, calibrate
from mjp.aladin.training.lesson import ClassLessons
from mjp.aladin.training.objective import caption_losses, class_losses
from mjp.common.device import autocast, pick_device
from mjp.common.distributed import World, join
from mjp.common.errors import InputError
from mjp.common.progress import say
from mjp.common.runs.checkpoint import weights_of
from mjp.common.runs.log import draw_curve
from mjp.common.runs.resumable import ResumableRun
from mjp.common.seeds import SAMPLE, STEP, derive_seed
from mjp.training.order import epoch_order

MAX_SCALE = 100.0


def train(config: AladinTraining) -> Path:
    """Train, or continue, one run; the folder of the trained model."""
    with join(config.device) as world:
        if world.size > 1 and (config.classes or config.phase == "classes"):
            raise InputError("classes are learned in one process: run it without torchrun")
        return train_channel(config) if config.phase == "classes" else AladinRun(config, world).train()


class Batch(NamedTuple):
    """What a step of all processes is about."""

    numbers: list[int]  # of pictures
    views: list[int]  # of each
    captions: list[int]  # some of every picture, in their order
    generator: torch.Generator  # for what is drawn later in the step


class AladinRun(ResumableRun[AladinTraining]):
    """Everything a run consists of, and the loop over it."""

    def __init__(self, config: AladinTraining, world: World | None = None) -> None:
        super().__init__(config, world or World(0, 1, pick_device(config.device)), free=FREE_TO_CHANGE)
        self.device = self.world.device
        train, dev = (split[: config.limit] for split in training_splits(load_captions(config.data, config.pictures)))
        self.model = self._initial_model(train)
        self.trained = nn.ModuleDict({"aladin": self.model})
        if config.train_backbone:
            self.trained["backbone"] = self.model.train_backbone()
        common: dict[str, Any] = {"workers": config.workers, "max_unreadable": config.max_unreadable}
        self.corpus = Corpus(self.model, train, config.cache, views=config.views, live=config.train_backbone, **common)
        self.dev = Corpus(self.model, dev, config.cache, live=config.train_backbone, **common)
        self.steps_per_epoch = len(self.corpus.items) // self.step_size
        if self.steps_per_epoch == 0:
            raise InputError(
                f"one step takes {self.step_size} pictures, {config.data} has {len(self.corpus.items)} for "
                "training: lower --batch-size"
            )
        self.teacher_scale = config.teacher_scale
        self.frozen: TeacherTokens | None = None
        self.lessons = ClassLessons(self.model, self.corpus, config.classes) if config.classes else None
        self.guide = None if config.guide is None else Guide(config, train, dev, self.device)
        if config.phase == "distill":
            self.frozen = TeacherTokens(self.model, self.corpus)
            self._calibrate()
        self.embed = Embedder(config, self.model, self.corpus, self.frozen)
        self.optimizer = build_optimizer(config, self.model)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=config.amp == "fp16")
        self.ema = ModelEmaV3(self.trained, decay=config.ema) if config.ema else None

    def _initial_model(self, data: list[Captioned]) -> Aladin:
        if not self.world.leads:
            self.world.wait()  # one process downloads
        torch.manual_seed(derive_seed(self.config.seed))  # torch draws weights from the global generator
        student = self.config.phase == "distill"
        model = (student_of_teacher(self.config) if student else fresh_model(self.config, data)).to(self.device)
        model.vision.model.to(self.device)
        if self.world.leads:
            self.world.wait()
        model.matching_trained = self.config.phase != "align" or model.embedding > 0
        return model

    @property
    def step_size(self) -> int:
        """Pictures per step, over all processes."""
        return self.config.batch_size * self.world.size

    def train(self) -> Path:
        with self.opened():
            for epoch in self.epochs():
                if self.epoch_is_complete and self.config.phase == "joint" and "distill" in self.config.objective:
                    self._calibrate()  # the teacher has changed
                for numbers, images in self.steps(epoch, self.batches(epoch)):
                    self.add(self.update(numbers, images))
                if self.epoch_is_complete:
                    self.finish_epoch(epoch)
            return self.finish() if self.is_complete else self.folder

    def batches(self, epoch: int) -> Iterator[tuple[list[int], Tensor | None]]:
        """The pictures of each step of the rest of an epoch; for a trained backbone, those of this process opened."""
        order, size = epoch_order(self.corpus.items, self.config.seed, epoch, 1), self.step_size
        first = epoch * self.steps_per_epoch
        steps = range(self.step, first + self.steps_per_epoch)
        numbers = [order[(step - first) * size : (step - first + 1) * size] for step in steps]
        if self.corpus.live is None:
            return zip(numbers, repeat(None), strict=False)
        batches = (self._draw(step, part) for step, part in zip(steps, numbers, strict=True))
        pictures = [list(zip(b.numbers, b.views, strict=True))[self._share()] for b in batches]
        return zip(numbers, self.corpus.live.batches(pictures), strict=True)

    def _share(self) -> slice:
        """The pictures of a step that this process embeds."""
        size = self.config.batch_size
        return slice(self.world.rank * size, (self.world.rank + 1) * size)

    def _draw(self, step: int, numbers: list[int]) -> Batch:
        generator = torch.Generator().manual_seed(derive_seed(self.config.seed, step, SAMPLE))
        views = torch.randint(self.config.views, (len(numbers),), generator=generator).tolist()
        return Batch(numbers, views, self._draw_captions(numbers, generator), generator)

    def update(self, numbers: list[int], images: Tensor | None = None) -> dict[str, float]:
        """One optimizer step on these pictures; its losses and the norm of the gradient."""
        config = self.config
        self.model.train()  # in distill the teacher has no dropout: its encoders do not run, their tokens are on disk
        rate = learning_rate(config, self.step / self.steps_per_epoch)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group.get("lr_scale", 1.0)
        self.optimizer.zero_grad(set_to_none=True)
        parts = self.backward(self._draw(self.step, numbers), images)
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.trained.parameters(), config.clip_grad).item()
        losses = {f"train_{name}": value.item() for name, value in parts.items()}
        loss = torch.stack(list(parts.values())).sum().item()
        if not math.isfinite(loss) or not (self.scaler.is_enabled() or math.isfinite(norm)):
            self.stop_at_bad_step(loss)  # fp16 may have an infinite norm now and then: the scaler leaves that step out
        self.scaler.step(self.optimizer)
        self.scaler.update()
        with torch.no_grad():
            for scale in self._scales():
                scale.clamp_(max=math.log(MAX_SCALE))
        if self.ema is not None:
            self.ema.update(self.trained, self.step)
        return {"train_loss": loss, **losses, "gradient_norm": norm}

    def backward(self, batch: Batch, images: Tensor | None = None) -> dict[str, Tensor]:
        """The gradient of the loss of all processes, in their parameters; the parts of the loss."""
        same = self.corpus.same(batch.numbers, batch.captions).to(self.device)
        guided = None if self.guide is None else self.guide.scores(batch.numbers, batch.views, batch.captions)

        def losses(sides: Sides) -> dict[str, Tensor]:
            parts = self._losses(sides, same, guided)
            return parts if self.lessons is None else parts | self._class_losses(sides.pictures, batch)

        parts = cached_backward(self._chunks(batch, images), losses, self.world, self.scaler.scale)
        sum_gradients(self.trained.parameters(), self._scales(), self.world)
        return parts

    def _chunks(self, batch: Batch, images: Tensor | None) -> list[Chunk]:
        """This process's part of the batch, in chunks that can be embedded again to the same bits."""
        share = self._share()
        if images is None and self.corpus.live is not None:
            rows = list(zip(batch.numbers, batch.views, strict=True))[share]
            images = next(self.corpus.live.batches([rows]))
        numbers, views = batch.numbers[share], batch.views[share]
        size = self.config.chunk or len(numbers)
        seed = partial(derive_seed, self.config.seed, self.step)
        single = size >= len(numbers) and self.world.size == 1

        def chunk(start: int) -> Sides:
            part = slice(start, start + size)
            members = set(numbers[part])
            captions = [c for c in batch.captions if int(self.corpus.owner[c]) in members]
            torch.manual_seed(seed(STEP) if single else seed(share.start + start, STEP))  # dropout
            pictures = None if images is None else images[part]
            with autocast(self.config.amp, self.device):
                return self.embed(numbers[part], views[part], captions, pictures)

        return [partial(chunk, start) for start in range(0, len(numbers), size)]

    def _losses(self, sides: Sides, same: Tensor, guided: Tensor | None = None) -> dict[str, Tensor]:
        hardness = min(1.0, self.step / max(1, round(self.config.hard_warmup * self.steps_per_epoch)))
        scales: dict[str, Any] = {"hardness": hardness, "teacher_scale": self.teacher_scale}
        return caption_losses(self.config, self.model, sides, same, guided=guided, **scales)

    def _class_losses(self, captioned: Compared, batch: Batch) -> dict[str, Tensor]:
        assert self.lessons is not None
        lesson = self.lessons.draw(batch.numbers, batch.views, batch.generator)
        return class_losses(
            self.config, self.model, captioned, self.embed.lesson(lesson), lesson.relevance.to(self.device)
        )

    def _scales(self) -> tuple[nn.Parameter, nn.Parameter]:
        return self.model.log_scale, self.model.log_align_scale

    def _calibrate(self) -> None:
        """Set T, unless it is given."""
        if self.config.teacher_scale is None:
            scale = torch.tensor(calibrate(self.model, self.dev, self.step_size), dtype=torch.float64)
            self.teacher_scale = (self.world.sum(scale.to(self.device)) / self.world.size).item()  # the same in all

    def _draw_captions(self, numbers: list[int], generator: torch.Generator) -> list[int]:
        """Some captions of every picture, drawn without replacement."""
        captions: list[int] = []
        for n in numbers:
            begin, count = self.corpus.first[n], len(self.corpus.items[n].captions)
            drawn = torch.randperm(count, generator=generator)[: self.config.captions]
            captions += (begin + drawn).tolist()
        return captions

    def finish_epoch(self, epoch: int) -> None:
        """Evaluate on dev if it is time, log, and save."""
        config, result = self.config, dict[str, Any]()
        if self.world.leads and ((epoch + 1) % config.eval_every == 0 or epoch + 1 == config.epochs):
            heads = {"alignment": config.phase != "distill", "matching": config.phase != "align"}
            result = dev_recall(self._evaluated(), self.dev, **heads)
        losses = {name: total / self.steps_per_epoch for name, total in self.sums.items()}
        scales = {"teacher_scale": self.teacher_scale, "student_scale": self.model.log_scale.exp().item()}
        self.write("epoch", epoch=epoch + 1, **losses, **scales, **result)
        self.save()
        scores = ", ".join(f"{name} {value:.1f}" for name, value in result.items() if "rsum" in name)
        if self.world.leads:
            say(f"epoch {epoch + 1}: loss {losses['train_loss']:.4f}" + (f", dev {scores}" if scores else ""))

    def finish(self) -> Path:
        """Training curve and final model."""
        config = self.config
        title = f"ALADIN, {config.phase}" + ("" if config.phase == "align" else f", {config.objective}")
        if self.world.leads:
            draw_curve(self.log, self.folder / "curve.png", title, "rsum", "rsum on dev")
            model = self._evaluated()
            if config.train_backbone:
                model.settle_backbone()
            model.save(self.folder / "model")
            if config.phase != "align":
                save_reference(some_vectors(model, self.corpus), self.folder / "model")
        self.world.wait()
        return self.folder / "model"

    def _evaluated(self) -> Aladin:
        return self.model if self.ema is None else self.ema.module["aladin"]

    def _teacher(self) -> str | None:
        """The hash of whoever teaches."""
        tokens = self.frozen if self.guide is None else self.guide.tokens
        return None if tokens is None else tokens.teacher

    def state(self) -> dict[str, Any]:
        return {
            "model": weights_of(self.model),
            **({"backbone": weights_of(self.trained["backbone"])} if self.config.train_backbone else {}),
            "ema": None if self.ema is None else weights_of(self.ema.module),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "teacher_scale": self.teacher_scale,
            "teacher": self._teacher(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        if state.get("teacher") != self._teacher():
            teacher = self.config.guide or self.config.teacher
            raise InputError(f"the run had another teacher than {teacher}: give it that one, or another --out")
        self.model.load_state_dict(state["model"])
        if self.config.train_backbone:
            self.trained["backbone"].load_state_dict(state["backbone"])
        self.scaler.load_state_dict(state["scaler"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.ema is not None:
            self.ema.module.load_state_dict(state["ema"])
        self.teacher_scale = state["teacher_scale"]

    def readings(self, steps: int, seconds: float, waited: float) -> dict[str, Any]:
        return {"lr": self.optimizer.param_groups[0]["lr"], "pictures_s": steps * self.step_size / seconds}
