"""The training loop, all of it.

    run = Run(config, world)       model, data, optimizer, schedule; continues a run found in the folder
    run.train()                    epochs of steps; evaluates, logs, writes checkpoints

Whatever is random is seeded anew from (seed, epoch, step), see order.py. There is no random state to save, and a run
killed at any moment continues to the same bits.
"""

import math
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from timm.loss import SoftTargetCrossEntropy
from timm.utils import ModelEmaV3
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from tqdm import tqdm

from mjp.common.distributed import World, join
from mjp.common.errors import InputError
from mjp.common.files import write_atomically
from mjp.common.runs.checkpoint import find_checkpoint, load_checkpoint, save_checkpoint
from mjp.common.runs.log import Log, draw_curve
from mjp.common.runs.recipe import refuse_other_run
from mjp.common.seeds import PLAN, STEP, derive_seed
from mjp.training.build import build_mixup, build_model, build_optimizer, build_schedule, localize_weight
from mjp.training.config import FREE_TO_CHANGE, TrainConfig
from mjp.training.data import Augmented, load_data, seed_transforms, transforms
from mjp.training.evaluate import Unreadable, evaluate
from mjp.training.order import Batches, epoch_length, epoch_order, rows_of

AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


def train(config: TrainConfig) -> Path:
    """Train, or continue, one run; the folder of the trained model."""
    with join(config.device) as world:
        return Run(config, world).train()


class Run:
    """All that a run consists of, and the loop over it."""

    def __init__(self, config: TrainConfig, world: World) -> None:
        self.config, self.world, self.folder = config, world, config.folder
        if not world.leads:
            world.wait()  # one process downloads
        self.train_pictures, self.val_pictures = load_data(config)
        if world.leads:
            world.wait()
        torch.manual_seed(derive_seed(config.seed))  # timm draws weights from the global generator
        self.model = build_model(config, len(self.train_pictures.classes)).to(world.device)
        self.model.classes = self.train_pictures.classes
        if config.channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        cfg: Any = self.model.model.pretrained_cfg
        self.train_transform, self.val_transform = transforms(config, cfg["mean"], cfg["std"])
        self.steps_per_epoch = epoch_length(len(self.train_pictures), config.repeated_aug) // self.step_size
        if self.steps_per_epoch == 0:
            raise InputError(
                f"one step takes {self.step_size} pictures, {config.data} has {len(self.train_pictures)} for training: "
                "lower --batch-size or --accumulate"
            )
        self.optimizer = build_optimizer(config, self.model, self.step_size)
        self.schedule = build_schedule(config, self.optimizer, self.steps_per_epoch)
        self.scaler = torch.amp.GradScaler(world.device.type, enabled=config.amp == "fp16")
        self.ema = ModelEmaV3(self.model, decay=config.model_ema_decay) if config.model_ema else None
        self.mixup = build_mixup(config, len(self.train_pictures.classes))
        self.criterion = (
            SoftTargetCrossEntropy() if self.mixup else nn.CrossEntropyLoss(label_smoothing=config.smoothing)
        )
        self.unreadable = Unreadable(config.max_unreadable, world)
        self.step = 0
        self.sums, self.summed = torch.zeros(4, device=world.device), 0  # of the current epoch, as _update gives them
        self.log = Log(self.folder, tensorboard=config.tensorboard and world.leads)

    @property
    def step_size(self) -> int:
        return self.config.batch_size * self.config.accumulate * self.world.size

    def train(self) -> Path:
        config, last = self.config, self.config.epochs * self.steps_per_epoch
        self._open_folder()
        network = self._network()
        end = last if config.stop_after is None else min(last, config.stop_after)
        while self.step < end:
            epoch = self.step // self.steps_per_epoch
            self.model.epoch = epoch
            self._train_epoch(network, epoch, end)
            if self.step % self.steps_per_epoch == 0:
                self._finish_epoch(epoch)
        if self.step < last:
            self.save()
            return self.folder
        return self._finish()

    def _train_epoch(self, network: Any, epoch: int, end: int) -> None:
        """Steps until the end of the epoch, or of the run."""
        config, first = self.config, epoch * self.steps_per_epoch
        loader = self._loader(epoch, start=self.step - first)
        if self.step == first:
            self.sums, self.summed = torch.zeros_like(self.sums), 0
        waited, began, done, saved = 0.0, time.perf_counter(), 0, time.monotonic()
        bar = tqdm(
            total=self.steps_per_epoch,
            initial=self.step - first,
            desc=f"epoch {epoch + 1}/{config.epochs}",
            unit="step",
            disable=None if self.world.leads else True,  # None: only on a terminal
        )
        with bar:
            batches = iter(loader)
            while self.step < min(first + self.steps_per_epoch, end):
                asked = time.perf_counter()
                micro = [next(batches) for _ in range(config.accumulate)]
                waited += time.perf_counter() - asked
                self.sums += self._update(network, micro)
                self.step, self.summed, done = self.step + 1, self.summed + 1, done + 1
                bar.update()
                if self.step % config.log_every == 0 or self.step == first + self.steps_per_epoch:
                    spent = time.perf_counter() - began
                    seen = self._means(done, spent, waited)
                    shown = {"loss": "train_loss", "top1": "train_top1", "images_s": "images_per_second"}
                    bar.set_postfix({short: f"{seen[name]:.4g}" for short, name in shown.items()})
                    self._write("step", **seen)
                    self.last_seen = seen
                # the last step of an epoch is saved after its evaluation, or a kill in between would lose that
                ended = self.step == first + self.steps_per_epoch
                due = time.monotonic() - saved > 60 * config.checkpoint_minutes
                if not ended and self.world.agree(due):
                    self.save()
                    saved = time.monotonic()

    def _update(self, network: Any, micro: list[Any]) -> Tensor:
        """One optimizer step; (loss, DAL, share of right answers, gradient norm)."""
        config, world = self.config, self.world
        self.schedule.step_update(self.step)
        self.optimizer.zero_grad(set_to_none=True)
        total = torch.zeros(4, device=world.device)
        weight = localize_weight(config, self.step / self.steps_per_epoch)
        plan = None
        for k, (images, labels, unreadable) in enumerate(micro):
            self.unreadable.note(unreadable, self.train_pictures)
            share = k * world.size + world.rank
            seed = derive_seed(config.seed, self.step, share, STEP)
            torch.manual_seed(seed)  # stochastic depth and dropout
            seed_transforms(seed)
            images, labels = self._to_device(images), labels.to(world.device, non_blocking=True)
            if self.mixup is not None:
                images, labels = self.mixup(images, labels)
            if plan is None:
                plan = self._plan(images)
            synchronised = k == len(micro) - 1 or world.size == 1
            with nullcontext() if synchronised else network.no_sync(), self._autocast():
                out = network(images, rows_of(plan, share, world.size * config.accumulate))
                loss = self.criterion(out.logits, labels) + weight * out.dal
                self.scaler.scale(loss / config.accumulate).backward()
            total[0] += loss.detach() / config.accumulate
            total[1] += out.dal.detach() / config.accumulate
            wanted = labels.argmax(1) if labels.ndim == 2 else labels  # of a mixture, its larger part
            total[2] += (out.logits.argmax(1) == wanted).float().mean() / config.accumulate
        total = self.world.sum(total) / world.size
        self.scaler.unscale_(self.optimizer)
        limit = config.clip_grad or math.inf
        total[3] = nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        # loss and norm are those of all processes, so that all of them stop at the same step; with fp16 a norm may be
        # infinite now and then: the scaler leaves such steps out
        loss, _, _, norm = total.tolist()
        if not math.isfinite(loss) or not (self.scaler.is_enabled() or math.isfinite(norm)):
            self._stop_at_bad_step(loss)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.ema is not None:
            self.ema.update(self.model, self.step)
        return total

    def _plan(self, images: Tensor) -> Any:
        """The plan of the whole step, all processes and micro-batches: each takes its rows."""
        seed = derive_seed(self.config.seed, self.step, PLAN)
        generator = torch.Generator(images.device).manual_seed(seed)
        whole = images[:1].expand(self.step_size, -1, -1, -1)  # only its shape is looked at
        return self.model.sample_plan(whole, generator)

    def _stop_at_bad_step(self, loss: float) -> None:
        path = self.save()
        raise InputError(
            f"the loss became {loss:.4g}, or its gradient was not finite, in step {self.step + 1}. "
            f"The last good step is saved in {path}: lower --lr, raise --warmup-epochs, or use --clip-grad"
        )

    def _finish_epoch(self, epoch: int) -> None:
        config = self.config
        result: dict[str, Any] = {"val_top1": None}
        if (epoch + 1) % config.eval_every == 0 or epoch + 1 == config.epochs:
            model = self.model if self.ema is None else self.ema.module
            data = Augmented(self.val_pictures, self.val_transform, training=False)
            result = evaluate(model, data, config, self.world, self.unreadable)
        self._write("epoch", epoch=epoch + 1, **self.last_seen, **result, unreadable=len(self.unreadable.gather()))
        self.save()
        self.unreadable.check()
        if self.world.leads and result["val_top1"] is not None:
            tqdm.write(f"epoch {epoch + 1}: loss {self.last_seen['train_loss']:.4f}, top-1 {result['val_top1']:.2f} %")

    def _finish(self) -> Path:
        """Training curve and final model."""
        target = self.folder / "model"
        if self.world.leads:
            draw_curve(self.log, self.folder / "curve.png", f"{self.config.model}, {self.config.preset}")
            (self.model if self.ema is None else self.ema.module).save_pretrained(target)
        self.world.wait()
        return target

    def save(self) -> Path:
        """A checkpoint of this moment; only the leading process writes."""
        path = self.folder / "checkpoints" / "last.pt"
        unreadable = self.unreadable.gather()
        if self.world.leads:
            state = {
                "step": self.step,
                "world": self.world.size,
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "scaler": self.scaler.state_dict(),
                "ema": None if self.ema is None else self.ema.module.state_dict(),
                "sums": self.sums,
                "summed": self.summed,
                "unreadable": unreadable,
            }
            save_checkpoint(path.parent, state)
        self.world.wait()
        return path

    def _restore(self, path: Path) -> None:
        state = load_checkpoint(path)
        try:
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.scaler.load_state_dict(state["scaler"])
            if self.ema is not None:
                self.ema.module.load_state_dict(state["ema"])
            self.sums, self.summed = state["sums"].to(self.world.device), state["summed"]
            self.unreadable.names = set(state["unreadable"])
        except (RuntimeError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise InputError(f"{path} belongs to another model: {str(error).splitlines()[0]}") from error
        if state["world"] != self.world.size:
            raise InputError(
                f"{path} is from a run of {state['world']} processes, this is {self.world.size}: for the same steps "
                "use the same number"
            )
        self.step = state["step"]

    def _open_folder(self) -> None:
        """Start a new run, or continue the one that is there if it is the same."""
        path = self.folder / "config.yaml"
        found = self.config.resume or find_checkpoint(self.folder / "checkpoints")
        if path.exists() and found is not None:
            refuse_other_run(path, self.config.to_yaml(), FREE_TO_CHANGE)
        if found is not None:
            self._restore(found)
        if self.world.leads:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, lambda temporary: temporary.write_text(self.config.to_yaml()))
            self.log.rewind(self.step)
            if found is not None:
                print(f"continuing {self.folder} at step {self.step} from {found}")
        self.world.wait()

    def _network(self) -> Any:
        """What the loop calls: compiled and distributed as asked."""
        network: Any = self.model.train()
        if self.world.size > 1:
            devices = [self.world.device.index] if self.world.device.type == "cuda" else None
            network = DistributedDataParallel(network, device_ids=devices)
        return torch.compile(network) if self.config.compile else network

    def _loader(self, epoch: int, start: int) -> DataLoader[Any]:
        config = self.config
        batches = Batches(
            epoch_order(self.train_pictures, config.seed, epoch, config.repeated_aug),
            seed=config.seed,
            epoch=epoch,
            batch=config.batch_size,
            accumulate=config.accumulate,
            rank=self.world.rank,
            world=self.world.size,
            start=start,
        )
        data = Augmented(self.train_pictures, self.train_transform, training=True)
        pin = self.world.device.type == "cuda"
        return DataLoader(data, batch_sampler=batches, num_workers=config.workers, pin_memory=pin)

    def _to_device(self, images: Tensor) -> Tensor:
        layout = torch.channels_last if self.config.channels_last else torch.contiguous_format
        return images.to(self.world.device, non_blocking=True, memory_format=layout)

    def _autocast(self) -> Any:
        kind = AUTOCAST.get(self.config.amp)
        return nullcontext() if kind is None else torch.autocast(self.world.device.type, dtype=kind)

    def _means(self, done: int, spent: float, waited: float) -> dict[str, Any]:
        loss, dal, right, norm = (self.sums / self.summed).tolist()
        return {
            "train_loss": loss,
            "train_dal": dal,
            "train_top1": 100 * right,
            "gradient_norm": norm,
            "lr": self.optimizer.param_groups[0]["lr"],
            "images_per_second": done * self.step_size / spent,
            "waiting_for_data_percent": 100 * waited / spent,
        }

    def _write(self, kind: str, **values: Any) -> None:
        if self.world.leads:
            self.log.write(kind, self.step, **values)
