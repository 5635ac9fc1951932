"""The training loop, all of it.

    run = Run(config, world)       model, data, optimizer, schedule
    run.train()                    epochs of steps; evaluates, logs, writes checkpoints

Folder, resume, checkpoints and log are those of every training run: common/runs/resumable.py. Whatever is random is
seeded anew from (seed, epoch, step), see order.py: interrupted runs resume bit-exactly.
"""

import math
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from timm.loss import SoftTargetCrossEntropy
from timm.utils import ModelEmaV3
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from mjp.common.device import autocast
from mjp.common.distributed import World, join
from mjp.common.errors import InputError
from mjp.common.progress import say
from mjp.common.runs.checkpoint import load_checkpoint, weights_of
from mjp.common.runs.log import draw_curve
from mjp.common.runs.resumable import ResumableRun
from mjp.common.seeds import STEP, derive_seed
from mjp.method.model import MJP
from mjp.training.build import (
    build_mixup,
    build_model,
    build_optimizer,
    build_pretrained,
    build_schedule,
    localize_weight,
    mask_ratio,
    refuse_idle_jigsaw,
    refuse_missing_weights,
    save_model,
)
from mjp.training.config import FREE_TO_CHANGE, TrainConfig
from mjp.training.data import Augmented, load_data, preprocessing, seed_transforms, transforms
from mjp.training.evaluate import Unreadable, evaluate
from mjp.training.groups import freeze
from mjp.training.jigsaws import Jigsaws, open_key
from mjp.training.order import Batches, epoch_length, epoch_order
from mjp.training.pretrained import Loaded
from mjp.training.summary import summary_lines

MicroBatches = list[tuple[Tensor, ...]]  # images, labels, numbers of unreadable pictures; hashes, if jigsaws stick


def train(config: TrainConfig) -> Path:
    """Train, or continue, one run; the folder of the trained model."""
    with join(config.device) as world:
        return Run(config, world).train()


class Run(ResumableRun[TrainConfig]):
    """Everything a run consists of, and the loop over it."""

    def __init__(self, config: TrainConfig, world: World) -> None:
        refuse_idle_jigsaw(config)
        refuse_missing_weights(config)
        super().__init__(config, world, free=FREE_TO_CHANGE, tensorboard=config.tensorboard)
        key = open_key(config)
        if not world.leads:
            world.wait()  # one process downloads
        self.train_pictures, self.val_pictures = load_data(config)
        if world.leads:
            world.wait()
        classes = self.train_pictures.classes
        torch.manual_seed(derive_seed(config.seed))  # timm draws weights from the global generator
        model, self.loaded, self.new = self._initial_model(len(classes))
        self.model = model.to(world.device)
        self.model.classes = classes
        self.frozen = freeze(self.model, config.freeze)
        if config.channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        cfg: Any = self.model.model.pretrained_cfg
        self.train_transform, self.val_transform = transforms(config, cfg["mean"], cfg["std"])
        self.model.preprocessing = preprocessing(config, cfg["mean"], cfg["std"])
        self.steps_per_epoch = epoch_length(len(self.train_pictures), config.repeated_aug) // self.step_size
        if self.steps_per_epoch == 0:
            raise InputError(
                f"one step takes {self.step_size} pictures, {config.data} has {len(self.train_pictures)} for training: "
                "lower --batch-size or --accumulate"
            )
        self.optimizer = build_optimizer(config, self.model, self.step_size, self.new)
        self.schedule = build_schedule(config, self.optimizer, self.steps_per_epoch)
        self.scaler = torch.amp.GradScaler(world.device.type, enabled=config.amp == "fp16")
        self.ema = ModelEmaV3(self.model, decay=config.model_ema_decay) if config.model_ema else None
        self.mixup = build_mixup(config, len(classes))
        self.criterion = (
            SoftTargetCrossEntropy() if self.mixup else nn.CrossEntropyLoss(label_smoothing=config.smoothing)
        )
        self.unreadable = Unreadable(config.max_unreadable, world)
        self.jigsaws = Jigsaws(config, self.model, key, step_size=self.step_size, std=cfg["std"])

    def _announce(self) -> None:
        if self.world.leads and not self.is_complete:
            lines = summary_lines(
                self.config,
                self.model,
                loaded=self.loaded,
                resumed=self.step > 0,
                frozen=self.frozen,
                pictures=(len(self.train_pictures), len(self.val_pictures)),
                step_size=self.step_size,
                steps_per_epoch=self.steps_per_epoch,
            )
            print("\n".join(lines), flush=True)

    def _initial_model(self, classes: int) -> tuple[MJP, Loaded | None, set[str]]:
        """The model, what was loaded into it, and the names of its new parameters; a resumed run needs no weights."""
        checkpoint = self.newest_checkpoint()
        if checkpoint is not None:
            return build_model(self.config, classes), None, set(load_checkpoint(checkpoint).get("new", ()))
        model, loaded = build_pretrained(self.config, classes)
        return model, loaded, set() if loaded is None else loaded.new

    @property
    def step_size(self) -> int:
        """Pictures per optimizer step, over all processes."""
        return self.config.batch_size * self.config.accumulate * self.world.size

    def train(self) -> Path:
        with self.opened():
            self._announce()
            network = self.network()
            for epoch in self.epochs():
                self.model.epoch = epoch
                for micro_batches in self.steps(epoch, self.batches(epoch)):
                    self.add(self.update(network, micro_batches))
                if self.epoch_is_complete:
                    self.finish_epoch(epoch)
            return self.finish() if self.is_complete else self.folder

    def update(self, network: Any, micro_batches: MicroBatches) -> dict[str, float]:
        """One optimizer step; its losses, share of right answers in percent, and the norm of the gradient."""
        self.schedule.step_update(self.step)
        self.optimizer.zero_grad(set_to_none=True)
        total = torch.zeros(3, device=self.world.device)  # loss, DAL, right answers
        shares = self.world.size * self.config.accumulate
        ratio = mask_ratio(self.config, self.step / self.steps_per_epoch)
        for k, (images, labels, unreadable, *digests) in enumerate(micro_batches):
            self.unreadable.note(unreadable, self.train_pictures)
            share = k * self.world.size + self.world.rank
            images, labels = self._prepare(images, labels, derive_seed(self.config.seed, self.step, share, STEP))
            rows = self.jigsaws.draw(images, *digests, step=self.step, ratio=ratio, share=share, shares=shares)
            synchronised = k == len(micro_batches) - 1 or self.world.size == 1
            with nullcontext() if synchronised else network.no_sync():
                total += self._accumulate(network, images, labels, rows)
        total = self.world.sum(total) / self.world.size
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_grad or math.inf)
        loss, dal, right, gradient_norm = torch.cat([total, norm.reshape(1)]).tolist()
        # loss and norm are those of all processes, so that all of them stop at the same step; with fp16 a norm may be
        # infinite now and then: the scaler leaves such steps out
        if not math.isfinite(loss) or not (self.scaler.is_enabled() or math.isfinite(gradient_norm)):
            self.stop_at_bad_step(loss)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.ema is not None:
            self.ema.update(self.model, self.step)
        return {"train_loss": loss, "train_dal": dal, "train_top1": 100 * right, "gradient_norm": gradient_norm}

    def _prepare(self, images: Tensor, labels: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """Seed the step, move its pictures to the device, mix and dither them."""
        torch.manual_seed(seed)  # stochastic depth and dropout
        seed_transforms(seed)
        layout = torch.channels_last if self.config.channels_last else torch.contiguous_format
        images = images.to(self.world.device, non_blocking=True, memory_format=layout)
        labels = labels.to(self.world.device, non_blocking=True)
        images, labels = (images, labels) if self.mixup is None else self.mixup(images, labels)
        return self.jigsaws.dithered(images), labels

    def _accumulate(self, network: Any, images: Tensor, labels: Tensor, plan: Any) -> Tensor:
        """Forward and backward pass of one micro-batch; its share of (loss, DAL, right answers)."""
        with autocast(self.config.amp, self.world.device):
            out = network(images, plan)
            weight = localize_weight(self.config, self.step / self.steps_per_epoch)
            loss = self.criterion(out.logits, labels) + weight * out.dal
        self.scaler.scale(loss / self.config.accumulate).backward()
        answers = labels.argmax(1) if labels.ndim == 2 else labels  # of a mixture, its larger part
        right = (out.logits.argmax(1) == answers).float().mean()
        return torch.stack([loss.detach(), out.dal.detach(), right]) / self.config.accumulate

    def finish_epoch(self, epoch: int) -> None:
        """Evaluate if it is time, log, and save."""
        config = self.config
        result: dict[str, Any] = {"val_top1": None}
        if (epoch + 1) % config.eval_every == 0 or epoch + 1 == config.epochs:
            data = Augmented(self.val_pictures, self.val_transform, training=False)
            result = evaluate(self._evaluated(), data, config, self.world, self.unreadable)
        self.write("epoch", epoch=epoch + 1, **self.means, **result, unreadable=len(self.unreadable.gather()))
        self.save()
        self.unreadable.check()
        if self.world.leads and result["val_top1"] is not None:
            say(f"epoch {epoch + 1}: loss {self.means['train_loss']:.4f}, top-1 {result['val_top1']:.2f} %")

    def finish(self) -> Path:
        """Training curve and final model."""
        target = self.folder / "model"
        if self.world.leads:
            draw_curve(self.log, self.folder / "curve.png", f"{self.config.model}, {self.config.preset}")
            save_model(self.config, self._evaluated(), target)
        self.world.wait()
        return target

    def state(self) -> dict[str, Any]:
        return {
            "model": weights_of(self.model),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "ema": None if self.ema is None else weights_of(self.ema.module),
            "unreadable": self.unreadable.gather(),
            "new": sorted(self.new),
            "key": self.jigsaws.check_value,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        if self.ema is not None:
            self.ema.module.load_state_dict(state["ema"])
        self.unreadable.names = set(state["unreadable"])
        self.jigsaws.expect(state.get("key"))

    def readings(self, steps: int, seconds: float, waited: float) -> dict[str, Any]:
        group = self.optimizer.param_groups[0]
        return {
            "lr": group["lr"] / group.get("lr_scale", 1.0),
            "images_per_second": steps * self.step_size / seconds,
            "waiting_for_data_percent": 100 * waited / seconds,
        }

    def network(self) -> Any:
        """What the loop calls: the model, distributed and compiled as configured."""
        network: Any = self.model.train()
        if self.world.size > 1:
            devices = [self.world.device.index] if self.world.device.type == "cuda" else None
            network = DistributedDataParallel(network, device_ids=devices)
        return torch.compile(network) if self.config.compile else network

    def batches(self, epoch: int) -> Iterator[MicroBatches]:
        """What each step of the rest of an epoch loads in this process."""
        loader = iter(self._loader(epoch))
        while True:
            yield [next(loader) for _ in range(self.config.accumulate)]

    def _loader(self, epoch: int) -> DataLoader[Any]:
        config = self.config
        batches = Batches(
            epoch_order(self.train_pictures, config.seed, epoch, config.repeated_aug),
            seed=config.seed,
            epoch=epoch,
            batch=config.batch_size,
            accumulate=config.accumulate,
            rank=self.world.rank,
            world=self.world.size,
            start=self.step - epoch * self.steps_per_epoch,
        )
        data = Augmented(self.train_pictures, self.train_transform, training=True, hashed=config.sticky)
        pin = self.world.device.type == "cuda"
        return DataLoader(data, batch_sampler=batches, num_workers=config.workers, pin_memory=pin)

    def _evaluated(self) -> MJP:
        return self.model if self.ema is None else self.ema.module
