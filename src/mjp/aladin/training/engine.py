"""Training in three phases: `align` the tokens, `distill` a vector from them, or both `joint`ly.

    run = AladinRun(config)        data, features on disk, model, optimizer
    run.train()                    epochs of steps; evaluates on dev, logs, writes checkpoints

Folder, resume, checkpoints and log are those of every training run: common/runs/resumable.py. Whatever is random is
seeded anew from (seed, step): interrupted runs resume bit-exactly.
"""

import math
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from timm.optim import create_optimizer_v2
from timm.utils import ModelEmaV3
from torch import Tensor, nn

from mjp.aladin.data.captions import load_captions, training_splits
from mjp.aladin.data.corpus import Corpus, TeacherTokens, encode_corpus, on
from mjp.aladin.evaluate.metrics import ranks, recall
from mjp.aladin.model.aladin import Aladin, evaluating
from mjp.aladin.model.alignment import align
from mjp.aladin.model.codes import Encoded
from mjp.aladin.model.tokens import Tokens, some_patches
from mjp.aladin.training.build import fresh_model, learning_rate, student_of_teacher
from mjp.aladin.training.channel import train_channel
from mjp.aladin.training.config import FREE_TO_CHANGE, AladinTraining
from mjp.aladin.training.guide import Guide, calibrate
from mjp.aladin.training.lesson import ClassLessons, Lesson
from mjp.aladin.training.losses import graded, infonce, listnet, triplet
from mjp.common.device import pick_device
from mjp.common.distributed import World
from mjp.common.errors import InputError
from mjp.common.progress import say
from mjp.common.runs.log import draw_curve
from mjp.common.runs.resumable import ResumableRun
from mjp.common.seeds import SAMPLE, STEP, derive_seed
from mjp.training.order import epoch_order

MAX_SCALE = 100.0
CLASS_WEIGHT = 0.5  # of the second lesson: captions come first


def train(config: AladinTraining) -> Path:
    """Train, or continue, one run; the folder of the trained model."""
    return train_channel(config) if config.phase == "classes" else AladinRun(config).train()


class AladinRun(ResumableRun[AladinTraining]):
    """Everything a run consists of, and the loop over it."""

    def __init__(self, config: AladinTraining) -> None:
        super().__init__(config, World(0, 1, pick_device(config.device)), free=FREE_TO_CHANGE)
        self.device = self.world.device
        train, dev = (split[: config.limit] for split in training_splits(load_captions(config.data, config.pictures)))
        torch.manual_seed(derive_seed(config.seed))  # torch draws weights from the global generator
        self.model = student_of_teacher(config) if config.phase == "distill" else fresh_model(config, train)
        self.model = self.model.to(self.device)
        self.model.matching_trained = config.phase != "align" or self.model.embedding > 0
        common: dict[str, Any] = {"workers": config.workers, "max_unreadable": config.max_unreadable}
        self.corpus = Corpus(self.model, train, config.cache, views=config.views, **common)
        self.dev = Corpus(self.model, dev, config.cache, **common)
        self.steps_per_epoch = len(self.corpus.items) // config.batch_size
        if self.steps_per_epoch == 0:
            raise InputError(
                f"one step takes {config.batch_size} pictures, {config.data} has {len(self.corpus.items)} for "
                "training: lower --batch-size"
            )
        self.teacher_scale = config.teacher_scale
        self.frozen: TeacherTokens | None = None
        self.lessons = ClassLessons(self.model, self.corpus, config.classes) if config.classes else None
        self.guide = None if config.guide is None else Guide(config, train, dev, self.device)
        if config.phase == "distill":
            self.frozen = TeacherTokens(self.model, self.corpus)
            self._calibrate()
        self.optimizer = create_optimizer_v2(self.model, "adamw", lr=config.lr, weight_decay=config.weight_decay)
        self.ema = ModelEmaV3(self.model, decay=config.ema) if config.ema else None

    def train(self) -> Path:
        with self.opened():
            for epoch in self.epochs():
                if self.epoch_is_complete and self.config.phase == "joint" and "distill" in self.config.objective:
                    self._calibrate()  # the teacher has changed
                for numbers in self.steps(epoch, self.batches(epoch)):
                    self.add(self.update(numbers))
                if self.epoch_is_complete:
                    self.finish_epoch(epoch)
            return self.finish() if self.is_complete else self.folder

    def batches(self, epoch: int) -> Iterator[list[int]]:
        """The pictures of each step of the rest of an epoch."""
        order, size = epoch_order(self.corpus.items, self.config.seed, epoch, 1), self.config.batch_size
        for step in range(self.step - epoch * self.steps_per_epoch, self.steps_per_epoch):
            yield order[step * size : (step + 1) * size]

    def update(self, numbers: list[int]) -> dict[str, float]:
        """One optimizer step on these pictures; its losses and the norm of the gradient."""
        config = self.config
        self.model.train()  # in distill the teacher has no dropout: its encoders do not run, their tokens are on disk
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(config, self.step / self.steps_per_epoch)
        torch.manual_seed(derive_seed(config.seed, self.step, STEP))  # dropout
        generator = torch.Generator().manual_seed(derive_seed(config.seed, self.step, SAMPLE))
        views = torch.randint(config.views, (len(numbers),), generator=generator).tolist()
        captions = self._draw_captions(numbers, generator)
        same = self.corpus.same(numbers, captions).to(self.device)
        pictures, texts = self._encoded(numbers, views, captions)
        guided = None if self.guide is None else self.guide.scores(numbers, views, captions)
        parts = self._losses(pictures, texts, same, guided)
        if self.lessons is not None:
            parts |= self._class_losses(pictures, self.lessons.draw(numbers, views, generator))
        loss = torch.stack(list(parts.values())).sum()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), config.clip_grad)
        if not (math.isfinite(loss.item()) and math.isfinite(norm.item())):
            self.stop_at_bad_step(loss.item())
        self.optimizer.step()
        with torch.no_grad():
            for scale in (self.model.log_scale, self.model.log_align_scale):
                scale.clamp_(max=math.log(MAX_SCALE))
        if self.ema is not None:
            self.ema.update(self.model, self.step)
        losses = {f"train_{name}": value.item() for name, value in parts.items()}
        return {"train_loss": loss.item(), **losses, "gradient_norm": norm.item()}

    def _encoded(self, numbers: list[int], views: list[int], captions: list[int]) -> tuple[Encoded, Encoded]:
        if self.frozen is not None:
            pictures, texts = self.frozen.read(numbers, views, captions)
            return on(self.device, pictures), on(self.device, texts)
        tokens, words = self.corpus.tokens(numbers, views), self.corpus.words(self.model, captions)
        tokens = self._seen(tokens)
        return self.model.encode_tokens(on(self.device, tokens)), self.model.encode_words(on(self.device, words))

    def _seen(self, tokens: Tokens) -> Tokens:
        """A share of the patches while encoders are trained; a frozen teacher has seen all of them."""
        return tokens if self.frozen is not None else some_patches(tokens, self.config.patch_share)

    def _losses(
        self, pictures: Encoded, texts: Encoded, same: Tensor, guided: Tensor | None = None
    ) -> dict[str, Tensor]:
        """The parts of the loss. A frozen alignment head does not learn; none learns from its student."""
        config, model = self.config, self.model
        hinge = {"margin": config.margin, "hardness": min(1.0, self.step / max(1, self._steps(config.hard_warmup)))}
        parts: dict[str, Tensor] = {}
        aligned = torch.zeros_like(same, dtype=torch.float32)
        if config.phase != "distill" or "distill" in config.objective:
            aligned = self._alignment(pictures, texts)
        if config.phase != "distill":
            parts["align"] = (
                triplet(aligned, same, **hinge)
                if config.align_objective == "triplet"
                else infonce(model.log_align_scale.exp() * aligned, same)
            )
        if guided is not None:
            parts["guide"] = listnet(model.log_align_scale.exp() * aligned, guided)
        if config.phase == "align":
            return parts
        matched = model.vectors(pictures, text=False) @ model.vectors(texts, text=True).T
        scaled = model.log_scale.exp() * matched
        if "distill" in config.objective:
            parts["distill"] = listnet(scaled, (self.teacher_scale or 1.0) * aligned)
        if "infonce" in config.objective:
            parts["infonce"] = infonce(scaled, same)
        if config.objective == "triplet":
            parts["triplet"] = triplet(matched, same, **hinge)
        return parts

    def _class_losses(self, captioned: Encoded, lesson: Lesson) -> dict[str, Tensor]:
        """What either head makes of classes, in the pictures of the step and in those of the lesson."""
        model, device = self.model, self.device
        with torch.set_grad_enabled(self.frozen is None), nullcontext() if self.frozen is None else evaluating(model):
            tokens = on(device, self._seen(lesson.tokens))
            pictures, texts = model.encode_tokens(tokens), model.encode_words(model.words(lesson.texts))
        pictures = Encoded(*(torch.cat(both) for both in zip(captioned, pictures, strict=True)))
        relevance, parts = lesson.relevance.to(device), dict[str, Tensor]()
        if self.config.phase != "distill":
            aligned = self._alignment(pictures, texts)
            parts["align_classes"] = CLASS_WEIGHT * graded(model.log_align_scale.exp() * aligned, relevance)
        if self.config.phase != "align":
            matched = model.vectors(pictures, text=False) @ model.vectors(texts, text=True).T
            parts["match_classes"] = CLASS_WEIGHT * graded(model.log_scale.exp() * matched, relevance)
        return parts

    def _alignment(self, pictures: Encoded, texts: Encoded) -> Tensor:
        model = self.model
        with torch.set_grad_enabled(self.frozen is None):
            patches, words = model.aligned(pictures, text=False), model.aligned(texts, text=True)
            return align(patches, pictures.valid, words, texts.valid, mode=model.config.alignment)

    def _calibrate(self) -> None:
        """Set T, unless it is given."""
        if self.config.teacher_scale is None:
            self.teacher_scale = calibrate(self.model, self.dev, self.config.batch_size)

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
        if (epoch + 1) % config.eval_every == 0 or epoch + 1 == config.epochs:
            heads = {"alignment": config.phase != "distill", "matching": config.phase != "align"}
            result = dev_recall(self._evaluated(), self.dev, **heads)
        losses = {name: total / self.steps_per_epoch for name, total in self.sums.items()}
        scales = {"teacher_scale": self.teacher_scale, "student_scale": self.model.log_scale.exp().item()}
        self.write("epoch", epoch=epoch + 1, **losses, **scales, **result)
        self.save()
        scores = ", ".join(f"{name} {value:.1f}" for name, value in result.items() if "rsum" in name)
        say(f"epoch {epoch + 1}: loss {losses['train_loss']:.4f}" + (f", dev {scores}" if scores else ""))

    def finish(self) -> Path:
        """Training curve and final model."""
        config = self.config
        title = f"ALADIN, {config.phase}" + ("" if config.phase == "align" else f", {config.objective}")
        draw_curve(self.log, self.folder / "curve.png", title, "rsum", "rsum on dev")
        self._evaluated().save(self.folder / "model")
        return self.folder / "model"

    def _evaluated(self) -> Aladin:
        return self.model if self.ema is None else self.ema.module

    def _steps(self, epochs: float) -> int:
        return round(epochs * self.steps_per_epoch)

    def _teacher(self) -> str | None:
        """The hash of whoever teaches."""
        tokens = self.frozen if self.guide is None else self.guide.tokens
        return None if tokens is None else tokens.teacher

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "ema": None if self.ema is None else self.ema.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "teacher_scale": self.teacher_scale,
            "teacher": self._teacher(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        if state.get("teacher") != self._teacher():
            teacher = self.config.guide or self.config.teacher
            raise InputError(f"the run had another teacher than {teacher}: give it that one, or another --out")
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.ema is not None:
            self.ema.module.load_state_dict(state["ema"])
        self.teacher_scale = state["teacher_scale"]

    def readings(self, steps: int, seconds: float, waited: float) -> dict[str, Any]:
        return {"lr": self.optimizer.param_groups[0]["lr"], "pictures_s": steps * self.config.batch_size / seconds}


def dev_recall(model: Aladin, corpus: Corpus, *, alignment: bool, matching: bool) -> dict[str, float]:
    """Recall on a corpus by either head; `rsum` is the matching head's if there is one."""
    pictures, texts = encode_corpus(model, corpus)
    measures: dict[str, float] = {}
    scores: dict[str, Tensor] = {}
    if alignment:
        scores["align_"] = model.alignment(pictures, texts)
    if matching:
        scores["match_"] = pictures.vector @ texts.vector.T
    for name, matrix in scores.items():
        result = recall(ranks(matrix.cpu(), corpus.owner))
        measures |= {f"{name}i2t_r1": result.i2t[0], f"{name}t2i_r1": result.t2i[0], f"{name}rsum": result.rsum}
        measures["rsum"] = result.rsum
    return measures
