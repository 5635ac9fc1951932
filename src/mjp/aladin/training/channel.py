"""Fit the class channel of a trained model: its words to the classes they name. Takes half a minute, and no picture.

    mjp aladin train --phase classes --init out/aladin-distill

Texts are drawn as in the second lesson: names, everyday kinds, definitions, in phrases. A text has to find the classes
of which it is true among all thousand.
"""

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from mjp.aladin.data.classes import CLASSES, draw_text, membership
from mjp.aladin.model.aladin import Aladin, load_text
from mjp.aladin.model.backbones import find_backbone
from mjp.aladin.model.class_channel import SCALE
from mjp.aladin.model.eval_mode import evaluating
from mjp.aladin.model.reference import load_reference, save_reference
from mjp.aladin.model.shipped import find_aladin
from mjp.aladin.training.config import AladinTraining
from mjp.common.errors import InputError
from mjp.common.files import write_atomically
from mjp.common.progress import track
from mjp.common.seeds import derive_seed

STEPS, BATCH, LR, DECAY = 400, 256, 2e-3, 0.3


def train_channel(config: AladinTraining) -> Path:
    """The model of `--init` with a class channel; its folder."""
    if config.init is None:
        raise InputError("--phase classes adds a channel to a trained model: name it with --init")
    base = find_aladin(str(config.init), searchable=True)
    model = with_channel(base)
    loss = fit(model, torch.Generator().manual_seed(derive_seed(config.seed)))
    print(f"loss {loss:.3f}")
    model.save(config.folder / "model")
    if (reference := load_reference(base.home)) is not None:
        save_reference(reference, config.folder / "model")
    write_atomically(config.folder / "config.yaml", lambda path: path.write_text(config.to_yaml(), encoding="utf-8"))
    return config.folder / "model"


def with_channel(base: Aladin) -> Aladin:
    """The same model with a class channel that is not fitted yet, on a backbone that says classes."""
    assert base.home is not None
    shape = replace(base.config, class_channel=True)
    vision = find_backbone(shape.backbone, shape.image_size)
    if vision.classes is None:
        raise InputError("--phase classes needs a backbone that says classes: train on lite0:classes first")
    model = Aladin(shape, vision.identity(), vision.width, load_text(base.config, base.home))
    model.load_state_dict(base.state_dict(), strict=False)
    model.matching_trained = True
    return model


def fit(model: Aladin, generator: torch.Generator, steps: int = STEPS) -> float:
    """Train the channel alone; the mean loss of the last tenth."""
    assert model.channel is not None
    codes = torch.nn.functional.normalize(model.vision.classes.codes, dim=1)  # type: ignore[union-attr]
    optimizer = torch.optim.AdamW(model.channel.parameters(), lr=LR, weight_decay=DECAY)
    model.channel.train()
    losses = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**31, (), generator=generator)))  # dropout
        for step in track(range(steps), "class channel"):
            optimizer.param_groups[0]["lr"] = LR * (1 - step / steps)
            loss = _loss(model, codes, generator)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    model.eval()
    last = losses[-max(1, steps // 10) :]
    return sum(last) / len(last)


def _loss(model: Aladin, codes: Tensor, generator: torch.Generator) -> Tensor:
    assert model.channel is not None
    numbers = torch.randint(CLASSES, (BATCH,), generator=generator).tolist()
    texts = [draw_text(number, generator) for number in numbers]
    assert model.pieces is not None
    with torch.no_grad(), evaluating(model.pieces):
        words = model.words([text.text for text in texts])
        vectors = model.word_vectors(words)
    target = membership(texts)
    scores = SCALE * model.channel(vectors, words.valid).codes @ codes.T
    return -(target / target.sum(1, keepdim=True) * scores.log_softmax(1)).sum(1).mean()
