"""Everything `mjp aladin eval` measures about a model, from two score matrices per split.

alignment   S^a of every pair: exact, slow, explains itself; the teacher
vector      S^m of every pair: one product of vectors; the student
two-stage   the K best by vector in the order of S^a, both directions; K is chosen on dev, never on test

A model whose matching head is not trained yet has the first only.
"""

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mjp.aladin.data.corpus import Corpus, encode_corpus
from mjp.aladin.evaluate.metrics import Ranks, Recall, folded_recall, overlap, ranks, recall, rerank, rsum_intervals
from mjp.aladin.evaluate.relevance import Judgement, judged_ndcg, ndcg, rouge_relevance
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.codes import Codes

ALIGNMENT, VECTOR, TWO_STAGE = "alignment", "vector", "two-stage"


class Ways(NamedTuple):
    """What a scorer says when pictures ask, and when captions do; in two stages these are different orders."""

    i2t: Tensor  # (B, C)
    t2i: Tensor  # (C, B)


def score_matrices(model: Aladin, corpus: Corpus) -> dict[str, Tensor]:
    """S^a and, if it was trained, S^m, (B, C) each; every picture and caption is encoded once."""
    found = scores_of(model, *encode_corpus(model, corpus))
    return found if model.matching_trained else {ALIGNMENT: found[ALIGNMENT]}


def scores_of(model: Aladin, pictures: Codes, texts: Codes) -> dict[str, Tensor]:
    with torch.no_grad():
        return {ALIGNMENT: model.alignment(pictures, texts).cpu(), VECTOR: (pictures.vector @ texts.vector.T).cpu()}


def two_stage(first: Tensor, second: Tensor, k: int) -> Ways:
    """Each direction re-ranks its own candidates: captions of a picture, pictures of a caption."""
    return Ways(rerank(first, second, k), rerank(first.T, second.T, k))


def two_stage_ranks(first: Tensor, second: Tensor, owner: Tensor, k: int) -> Ranks:
    found = two_stage(first, second, k)
    return Ranks(ranks(found.i2t, owner).i2t, ranks(found.t2i.T, owner).t2i)


def choose_k(scores: dict[str, Tensor], owner: Tensor, candidates: tuple[int, ...]) -> int:
    """The K with the largest rsum; of equals the smallest."""
    return max(
        sorted(candidates), key=lambda k: recall(two_stage_ranks(scores[VECTOR], scores[ALIGNMENT], owner, k)).rsum
    )


def measure(scores: dict[str, Tensor], corpus: Corpus, k: int, *, seed: int, fold: int | None) -> dict[str, Any]:
    """Recall of every scorer with intervals, in the whole gallery and in folds of it."""
    owner, student, teacher = corpus.owner, scores.get(VECTOR), scores[ALIGNMENT]
    found = {name: ranks(matrix, owner) for name, matrix in scores.items()}
    if student is not None:
        found[TWO_STAGE] = two_stage_ranks(student, teacher, owner, k)
    intervals = rsum_intervals(found, owner, ALIGNMENT, seed=seed)
    whole = {name: recall(each) for name, each in found.items()}
    results: dict[str, Any] = {}
    for name in found:
        results[name] = {
            **_facts(whole[name]),
            **{kind: interval._asdict() for kind, interval in intervals[name].items() if kind == "difference"},
            "rsum_interval": intervals[name]["rsum"]._asdict(),
            "retention_percent": _percent(whole[name].rsum, whole[ALIGNMENT].rsum),
            "retention_t2i_percent": _percent(sum(whole[name].t2i), sum(whole[ALIGNMENT].t2i)),
        }
    if fold is not None:
        folds = {name: folded_recall((matrix,), owner, fold) for name, matrix in scores.items()}
        if student is not None:
            folds[TWO_STAGE] = folded_recall((student, teacher), owner, fold, partial(two_stage_ranks, k=k))
        for name, each in folds.items():
            results[name]["folds"] = {"size": fold, **_facts(each)}
    if student is not None:
        results[VECTOR]["overlap10"] = {"i2t": overlap(student, teacher), "t2i": overlap(student.T, teacher.T)}
        results[TWO_STAGE]["k"] = k
    return results


def graded(scores: dict[str, Tensor], corpus: Corpus, k: int, judgements: dict[str, list[Judgement]]) -> dict[str, Any]:
    """NDCG@25 in percent by ROUGE-L, and by the people whose judgements there are."""
    relevance = rouge_relevance(corpus.items)
    found = {name: Ways(matrix, matrix.T) for name, matrix in scores.items()}
    if VECTOR in scores:
        found[TWO_STAGE] = two_stage(scores[VECTOR], scores[ALIGNMENT], k)
    results: dict[str, Any] = {}
    for name, (i2t, t2i) in found.items():
        means = [float(ndcg(s, r).mean()) for s, r in ((i2t, relevance), (t2i, relevance.T))]
        results[name] = {"rouge_l": {"i2t": 100 * means[0], "t2i": 100 * means[1]}}
        results[name] |= {who: judged_ndcg(i2t, t2i, corpus.items, said) for who, said in judgements.items()}
    return results


def _percent(part: float, whole: float) -> float | None:
    """None of nothing: alignment may have found no picture at all."""
    return 100 * part / whole if whole else None


def _facts(result: Recall) -> dict[str, Any]:
    return {**result._asdict(), "rsum": result.rsum}
