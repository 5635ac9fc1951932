"""Do plain words find ordinary pictures? Precision over a folder of classes, beside recall of captions.

FOLDER/CLASS/*    every class asks for its pictures: “a photo of a CLASS”
                  and every everyday word for several of them (kinds.yaml): “a dog”, if ImageNet has the classes

p5, p10   the share of right pictures among the first 5 and 10
r1        whether the first picture is right
map       mean average precision over the whole ranking

Intervals are over queries. `possible` is what a perfect ranking reaches, `chance` what a random one does on average.
"""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mjp.aladin.data.captions import Captioned
from mjp.aladin.data.classes import class_number, kinds, plain_name, with_article
from mjp.aladin.data.corpus import Corpus, encode_corpus
from mjp.aladin.evaluate.metrics import rerank
from mjp.aladin.evaluate.scorers import ALIGNMENT, TWO_STAGE, VECTOR, trained_scores
from mjp.aladin.model.aladin import Aladin
from mjp.common.stats import Bootstrap
from mjp.pictures.sets import Folder

MEASURES = ("p5", "p10", "r1", "map")


class Queries(NamedTuple):
    """Texts, and which pictures are right for each."""

    texts: list[str]
    right: Tensor  # (Q, B) bool


def label_data(folder: Path) -> tuple[Folder, list[Captioned]]:
    """The pictures of a folder of classes, captioned with their class."""
    pictures = Folder(folder)
    items = [
        Captioned(path, (name_query(pictures.classes[label]),), "labels")
        for path, label in zip(pictures.paths, pictures.labels, strict=True)
    ]
    return pictures, items


def name_query(name: str) -> str:
    return f"a photo of {with_article(plain_name(name) or name)}"


def class_queries(classes: list[str], labels: Tensor) -> Queries:
    """Every class by its name; `labels` (B,)."""
    return Queries([name_query(name) for name in classes], labels == torch.arange(len(classes)).unsqueeze(1))


def kind_queries(classes: list[str], labels: Tensor) -> Queries:
    """Every everyday word that is true of some of the classes, but not of all."""
    numbers = [class_number(name) for name in classes]
    texts, right = [], []
    for word, members in kinds().items():
        covered = torch.tensor([number in members for number in numbers])
        if bool(covered.any()) and not bool(covered.all()):
            texts.append(with_article(word))
            right.append(covered[labels])
    return Queries(texts, torch.stack(right) if right else torch.zeros(0, len(labels), dtype=torch.bool))


def measure_labels(model: Aladin, corpus: Corpus, pictures: Folder, k: int, *, seed: int) -> dict[str, Any]:
    """Every measure of every scorer by name and by kind; `k` candidates are re-ranked."""
    place = dict(zip(pictures.paths, pictures.labels, strict=True))
    labels = torch.tensor([place[item.path] for item in corpus.items])
    codes, _ = encode_corpus(model, corpus)
    results: dict[str, Any] = {"folder": str(pictures.root), "pictures": len(labels), "classes": len(pictures.classes)}
    for way, queries in (("name", class_queries), ("kind", kind_queries)):
        asked = queries(pictures.classes, labels)
        if asked.texts:
            scores = trained_scores(model, codes, model.encode_texts(asked.texts))
            results[way] = _measured({name: matrix.T for name, matrix in scores.items()}, asked, k, seed)
    return results


def _measured(scores: dict[str, Tensor], queries: Queries, k: int, seed: int) -> dict[str, Any]:
    if VECTOR in scores and ALIGNMENT in scores:
        scores = {**scores, TWO_STAGE: rerank(scores[VECTOR], scores[ALIGNMENT], k)}
    right = queries.right.double()
    sizes = right.sum(1, keepdim=True)
    return {
        "queries": len(queries.texts),
        "possible": {f"p{n}": float((sizes / n).clamp(max=1).mean()) for n in (5, 10)},
        "chance": float(right.mean()),
        "scorers": {name: _intervals(precision(matrix, queries.right), seed) for name, matrix in scores.items()},
    }


def precision(scores: Tensor, right: Tensor) -> Tensor:
    """(Q, 4): the MEASURES of every query; scores and right are (Q, B). Equal scores count against the scorer."""
    wrong_first = right.int().argsort(dim=1, stable=True)
    order = scores.gather(1, wrong_first).argsort(dim=1, descending=True, stable=True)
    ranked = right.gather(1, wrong_first).gather(1, order).double()
    places = torch.arange(1, ranked.shape[1] + 1)
    average = (ranked * ranked.cumsum(1) / places).sum(1) / ranked.sum(1).clamp(min=1)
    return torch.stack([ranked[:, :5].mean(1), ranked[:, :10].mean(1), ranked[:, 0], average], 1)


def _intervals(values: Tensor, seed: int) -> dict[str, Any]:
    bootstrap = Bootstrap(len(MEASURES), seed=seed)
    bootstrap.add(values)
    return {name: value._asdict() for name, value in zip(MEASURES, bootstrap.intervals(), strict=True)}
