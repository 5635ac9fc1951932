"""Accuracy on the validation pictures, and the count of pictures that could not be read."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from mjp.common.distributed import World
from mjp.common.errors import InputError
from mjp.common.progress import say, track
from mjp.pictures.sets import Pictures
from mjp.training.config import TrainConfig
from mjp.training.data import Augmented


class Unreadable:
    """Names unreadable pictures once each and stops when there are too many."""

    def __init__(self, limit: int, world: World) -> None:
        self.limit, self.world, self.names = limit, world, set[str]()

    def note(self, numbers: Tensor, pictures: Pictures) -> None:
        for number in numbers[numbers >= 0].tolist():
            name = pictures.name(number)
            if name not in self.names:
                self.names.add(name)
                say(f"unreadable: {name}")
        self.check()

    def gather(self) -> list[str]:
        """The names that all processes have met, each once."""
        self.names = self.world.unite(self.names)
        return sorted(self.names)

    def check(self) -> None:
        if len(self.names) > self.limit:
            names = ", ".join(sorted(self.names)[:5])
            raise InputError(
                f"{len(self.names)} unreadable pictures, --max-unreadable allows {self.limit}: {names}. Repair or "
                "remove them, or raise the limit"
            )


@torch.no_grad()
def evaluate(
    model: Any, data: Augmented, config: TrainConfig, world: World, unreadable: Unreadable
) -> dict[str, float]:
    """Top-1, top-5 and loss on whole pictures, without a jigsaw. An unreadable picture counts as a wrong answer."""
    was_training = model.training
    model.eval()
    numbers = [(n, 0) for n in range(world.rank, len(data), world.size)]
    batches = [numbers[i : i + config.batch_size] for i in range(0, len(numbers), config.batch_size)]
    sums = torch.zeros(5, device=world.device)  # right, right in five, loss, pictures that have one, pictures
    loader = DataLoader(data, batch_sampler=batches, num_workers=config.workers)
    for images, labels, bad in track(loader, "evaluating", quiet=not world.leads):
        unreadable.note(bad, data.pictures)
        labels = labels.to(world.device, non_blocking=True)
        logits = model(images.to(world.device, non_blocking=True)).float()
        best = logits.topk(min(5, logits.shape[1]), 1).indices
        hits = best == labels.unsqueeze(1)
        sums[0] += hits[:, 0].sum()
        sums[1] += hits.sum()
        sums[2] += cross_entropy(logits, labels, ignore_index=-1, reduction="sum")
        sums[3] += (labels >= 0).sum()
        sums[4] += len(labels)
    model.train(was_training)
    top1, top5, loss, readable, count = world.sum(sums).tolist()
    return {
        "val_top1": 100 * top1 / count,
        "val_top5": 100 * top5 / count,
        "val_loss": loss / max(readable, 1),
        "val_pictures": count,
    }
