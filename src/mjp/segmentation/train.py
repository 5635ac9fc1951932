"""Fine-tune UPerNet on pictures and masks, and measure it.

    results = segment(SegmentConfig(data=Path("camvid"), checkpoint=Path("out/swin-paper")))

Folder, resume, checkpoints and log are those of every training run: common/runs/resumable.py. Whatever is random is
seeded anew from (seed, epoch, step): interrupted runs resume bit-exactly (on a CPU; a GPU adds the gradients of
upsampling in any order). The figures are those of the weights after the last step, not of the best epoch.
"""

import math
import os
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
from safetensors.torch import save_file
from timm.optim import param_groups_weight_decay
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from mjp.common.device import pick_device
from mjp.common.distributed import World
from mjp.common.errors import InputError
from mjp.common.files import check_folder, write_atomically
from mjp.common.progress import say
from mjp.common.results import Results, write_results
from mjp.common.runs.log import draw_curve
from mjp.common.runs.resumable import ResumableRun
from mjp.common.seeds import STEP, derive_seed, epoch_permutation
from mjp.segmentation.chart import Example, draw_predictions
from mjp.segmentation.config import FREE_TO_CHANGE, SegmentConfig
from mjp.segmentation.evaluate import evaluate, predict, truth_size
from mjp.segmentation.folders import find_scenes
from mjp.segmentation.metrics import IGNORE, intervals, scores
from mjp.segmentation.network import build_network, load_backbone
from mjp.segmentation.views import Crops, Look, WholePictures
from mjp.training.order import Batches

MAX_EXAMPLES = 4  # rows of predictions.png
Batch = tuple[Tensor, Tensor, tuple[str, ...]]  # images, classes, why a picture could not be read


def segment(config: SegmentConfig) -> Results | None:
    """Train, or continue, one run and measure it; None if --stop-after ended it before its last step."""
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise InputError("mjp segment runs in one process: start it without torchrun")
    check_folder(config.out)
    return SegmentRun(config, World(0, 1, pick_device(config.device))).train()


class SegmentRun(ResumableRun[SegmentConfig]):
    """Everything a run consists of, and the loop over it."""

    def __init__(self, config: SegmentConfig, world: World) -> None:
        super().__init__(config, world, free=FREE_TO_CHANGE)
        self.data = find_scenes(config.data)
        self.split = config.split or ("test" if "test" in self.data.splits else "val")
        if self.split not in self.data.splits:
            raise InputError(f"{config.data} has no {self.split} pictures: leave --split out, or give --split val")
        self.steps_per_epoch = len(self.data.splits["train"]) // config.batch_size
        if not self.steps_per_epoch:
            count = len(self.data.splits["train"])
            raise InputError(f"{count} training pictures do not fill a batch: lower --batch-size to {count} or less")
        self.backbone = load_backbone(config)
        self.look = Look(config.short_side, self.backbone.mean, self.backbone.std)
        torch.manual_seed(derive_seed(config.seed))  # the decoder is drawn from the global generator
        network = build_network(
            self.backbone,
            classes=len(self.data.labels.names),
            crop=config.crop,
            decoder_channels=config.decoder_channels,
            drop_path=config.drop_path,
        )
        self.data.check()
        self.network = network.to(world.device)
        self.optimizer = torch.optim.AdamW(_parameter_groups(self.network, config.weight_decay), lr=config.lr)

    def train(self) -> Results | None:
        with self.opened():
            self.network.train()
            for epoch in self.epochs():
                for batch in self.steps(epoch, self.batches(epoch)):
                    self.add(self.update(batch))
                if self.epoch_is_complete:
                    self.finish_epoch(epoch)
            return self.finish() if self.is_complete else None

    def update(self, batch: Batch) -> dict[str, float]:
        """One optimizer step; its loss and the norm of its gradient."""
        images, truth, problems = batch
        if unreadable := [problem for problem in problems if problem]:
            raise InputError(unreadable[0])
        images, truth = (part.to(self.world.device, non_blocking=True) for part in (images, truth))
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate(self.step)
        torch.manual_seed(derive_seed(self.config.seed, self.step, STEP))  # stochastic depth
        self.optimizer.zero_grad(set_to_none=True)
        with self._autocast():
            logits = self.network(images)  # (B, C, S, S)
        loss = segmentation_loss(logits.float(), truth)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.network.parameters(), self.config.clip_grad or math.inf)
        value, gradient_norm = torch.stack([loss.detach(), norm]).tolist()
        if not (math.isfinite(value) and math.isfinite(gradient_norm)):
            self.stop_at_bad_step(value)
        self.optimizer.step()
        return {"train_loss": value, "gradient_norm": gradient_norm}

    def learning_rate(self, step: int) -> float:
        """Linear warm-up, then linear to 0 at the end of the run."""
        warmup = min(round(self.config.warmup_epochs * self.steps_per_epoch), self.last_step)
        rising = (step + 1) / max(warmup, 1)
        falling = (self.last_step - step) / max(self.last_step - warmup, 1)
        return self.config.lr * min(rising, falling, 1.0)

    def batches(self, epoch: int) -> Iterator[Batch]:
        """What each step of the rest of an epoch loads."""
        config, scenes = self.config, self.data.splits["train"]
        batches = Batches(
            epoch_permutation(len(scenes), config.seed, epoch),
            seed=config.seed,
            epoch=epoch,
            batch=config.batch_size,
            accumulate=1,
            rank=0,
            world=1,
            start=self.step - epoch * self.steps_per_epoch,
        )
        pin = self.world.device.type == "cuda"
        crops = Crops(scenes, self.look, config)
        return iter(DataLoader(crops, batch_sampler=batches, num_workers=config.workers, pin_memory=pin))

    def measure(self, split: str) -> Tensor:
        """(N, 3, C) pixel counts of a split."""
        pictures = WholePictures(self.data.splits[split], self.look)
        with self._autocast():
            return evaluate(self.network, pictures, workers=self.config.workers, device=self.world.device)

    def finish_epoch(self, epoch: int) -> None:
        """Evaluate on val if it is time, log, and save."""
        result: dict[str, Any] = {"val_miou": None, "val_macc": None}
        if (epoch + 1) % self.config.eval_every == 0 or epoch + 1 == self.config.epochs:
            measured = scores(self.measure("val").sum(0))
            result = {"val_miou": 100 * measured.miou.item(), "val_macc": 100 * measured.macc.item()}
            loss = self.means["train_loss"]
            say(f"epoch {epoch + 1}: loss {loss:.4f}, val mIoU {result['val_miou']:.2f} %")
        self.write("epoch", epoch=epoch + 1, **self.means, **result)
        self.save()

    def finish(self) -> Results:
        """Final figures, pictures and weights."""
        counts = self.measure(self.split)  # (N, 3, C)
        title = f"UPerNet, {self.backbone.architecture}, weights: {self.backbone.origin}"
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in self.network.state_dict().items()}
        write_atomically(self.folder / "model.safetensors", lambda path: save_file(weights, path))
        write_atomically(self.folder / "counts.safetensors", lambda path: save_file({"counts": counts}, path))
        draw_curve(self.log, self.folder / "curve.png", title, "val_miou", "mIoU on val, %")
        draw_predictions(self.examples(), self.data.labels.names, self.folder / "predictions.png", title)
        return write_results(self.folder, "segment", self.config, self.body(counts))

    def body(self, counts: Tensor) -> dict[str, Any]:
        """What results.json says; shares are fractions, intervals (mean, low, high) over the pictures."""
        measured = scores(counts.sum(0))
        names = self.data.labels.names
        rows = zip(names, measured.iou.tolist(), measured.recall.tolist(), counts.sum(0)[1].tolist(), strict=True)
        per_class = {name: {"iou": iou, "recall": recall, "pixels": pixels} for name, iou, recall, pixels in rows}
        model = {
            **intervals(counts, seed=self.config.seed),
            "pictures": len(counts),
            "steps": self.step,
            "seed": self.config.seed,
            "backbone": self.backbone.describe(),
            "classes": per_class,
        }
        return {
            "data": str(self.config.data),
            "layout": self.data.layout,
            "split": self.split,
            "models": {self.name: model},
        }

    @property
    def name(self) -> str:
        """How the results call this run: by its weights, or by its backbone where they have no name."""
        return str(self.config.checkpoint or self.backbone.architecture)

    @torch.no_grad()
    def examples(self) -> list[Example]:
        """Pictures evenly taken from the split, with what the network sees in them."""
        self.network.eval()
        scenes = self.data.splits[self.split]
        count = min(MAX_EXAMPLES, len(scenes))
        examples = []
        for number in (k * len(scenes) // count for k in range(count)):
            image, truth, problem = WholePictures(scenes, self.look)[number]
            if problem:
                raise InputError(problem)
            prediction = predict(self.network, image.to(self.world.device), truth_size(truth))
            picture, classes = scenes.load(number)
            examples.append(Example(picture, classes, prediction.byte().cpu().numpy()))
        return examples

    def state(self) -> dict[str, Any]:
        return {"model": self.network.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])

    def readings(self, steps: int, seconds: float, waited: float) -> dict[str, Any]:
        return {
            "lr": self.optimizer.param_groups[0]["lr"],
            "images_per_second": steps * self.config.batch_size / seconds,
            "waiting_for_data_percent": 100 * waited / seconds,
        }

    def _autocast(self) -> Any:
        if self.config.amp == "none":
            return nullcontext()
        return torch.autocast(self.world.device.type, dtype=torch.bfloat16)


def segmentation_loss(logits: Tensor, truth: Tensor) -> Tensor:
    """Mean cross entropy over the pixels that are not void; 0 if all of them are."""
    total = cross_entropy(logits, truth, ignore_index=IGNORE, reduction="sum")
    return total / (truth != IGNORE).sum().clamp(min=1)


def _parameter_groups(network: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """No decay on biases and norms (timm's rule) and on tables of positions."""
    tables = [name for name, _ in network.named_parameters() if "relative_position" in name or "positions" in name]
    return list(param_groups_weight_decay(network, weight_decay, no_weight_decay_list=tables))
