"""Everything `mjp aladin eval` measures about a model, from two score matrices per split.

alignment   S^a of every pair: exact, slow, explainable; the teacher
vector      S^m of every pair: one product of vectors; the student
two-stage   the K best by vector in the order of S^a, both directions; K is chosen on dev, never on test

A model whose matching head is not trained yet has only the first, a pair as it was published only the second.
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
from mjp.common.stats import Interval

ALIGNMENT, VECTOR, TWO_STAGE = "alignment", "vector", "two-stage"


class Directions(NamedTuple):
    """Scores with pictures as queries, and with captions as queries; in two stages the orders differ."""

    i2t: Tensor  # (B, C)
    t2i: Tensor  # (C, B)


def score_matrices(model: Aladin, corpus: Corpus) -> dict[str, Tensor]:
    """S^a and S^m, (B, C) each, by the heads that were trained; every picture and caption is encoded once."""
    return trained_scores(model, *encode_corpus(model, corpus))


def trained_scores(model: Aladin, pictures: Codes, texts: Codes) -> dict[str, Tensor]:
    trained = {ALIGNMENT: model.alignment_trained, VECTOR: model.matching_trained}
    return {name: matrix for name, matrix in scores_of(model, pictures, texts).items() if trained[name]}


def scores_of(model: Aladin, pictures: Codes, texts: Codes) -> dict[str, Tensor]:
    with torch.no_grad():
        return {ALIGNMENT: model.alignment(pictures, texts).cpu(), VECTOR: (pictures.vector @ texts.vector.T).cpu()}


def two_stage(first: Tensor, second: Tensor, k: int) -> Directions:
    """Each direction re-ranks its own candidates: captions of a picture, pictures of a caption."""
    return Directions(rerank(first, second, k), rerank(first.T, second.T, k))


def two_stage_ranks(first: Tensor, second: Tensor, owner: Tensor, k: int) -> Ranks:
    scores = two_stage(first, second, k)
    return Ranks(ranks(scores.i2t, owner).i2t, ranks(scores.t2i.T, owner).t2i)


def choose_k(scores: dict[str, Tensor], owner: Tensor, candidates: tuple[int, ...]) -> int:
    """The K with the largest rsum; of equal ones the smallest."""
    return max(
        sorted(candidates), key=lambda k: recall(two_stage_ranks(scores[VECTOR], scores[ALIGNMENT], owner, k)).rsum
    )


def measure(scores: dict[str, Tensor], corpus: Corpus, k: int, *, seed: int, fold: int | None) -> dict[str, Any]:
    """Recall of every scorer with intervals, in the whole gallery and in folds of it."""
    owner, student, teacher = corpus.owner, scores.get(VECTOR), scores.get(ALIGNMENT)
    ranks_of = {name: ranks(matrix, owner) for name, matrix in scores.items()}
    if student is not None and teacher is not None:
        ranks_of[TWO_STAGE] = two_stage_ranks(student, teacher, owner, k)
    intervals = rsum_intervals(ranks_of, owner, VECTOR if teacher is None else ALIGNMENT, seed=seed)
    recalls = {name: recall(ranks) for name, ranks in ranks_of.items()}
    results = {name: _scorer_entry(recalls[name], recalls.get(ALIGNMENT), intervals[name]) for name in recalls}
    if fold is not None:
        folds = {name: folded_recall((matrix,), owner, fold) for name, matrix in scores.items()}
        if student is not None and teacher is not None:
            folds[TWO_STAGE] = folded_recall((student, teacher), owner, fold, partial(two_stage_ranks, k=k))
        for name, folded in folds.items():
            results[name]["folds"] = {"size": fold, **_recall_entry(folded)}
    if student is not None and teacher is not None:
        results[VECTOR]["overlap10"] = {"i2t": overlap(student, teacher), "t2i": overlap(student.T, teacher.T)}
        results[TWO_STAGE]["k"] = k
    return results


def _scorer_entry(scorer: Recall, teacher: Recall | None, intervals: dict[str, Interval]) -> dict[str, Any]:
    """Without a teacher there is nothing to compare with."""
    return {
        **_recall_entry(scorer),
        "difference": None if teacher is None else intervals["difference"]._asdict(),
        "rsum_interval": intervals["rsum"]._asdict(),
        "retention_percent": None if teacher is None else _percent(scorer.rsum, teacher.rsum),
        "retention_t2i_percent": None if teacher is None else _percent(sum(scorer.t2i), sum(teacher.t2i)),
    }


def graded(scores: dict[str, Tensor], corpus: Corpus, k: int, judgements: dict[str, list[Judgement]]) -> dict[str, Any]:
    """NDCG@25 in percent by ROUGE-L, and by each set of human judgements."""
    relevance = rouge_relevance(corpus.items)
    rankings = {name: Directions(matrix, matrix.T) for name, matrix in scores.items()}
    if VECTOR in scores and ALIGNMENT in scores:
        rankings[TWO_STAGE] = two_stage(scores[VECTOR], scores[ALIGNMENT], k)
    results: dict[str, Any] = {}
    for name, (i2t, t2i) in rankings.items():
        means = [float(ndcg(s, r).mean()) for s, r in ((i2t, relevance), (t2i, relevance.T))]
        results[name] = {"rouge_l": {"i2t": 100 * means[0], "t2i": 100 * means[1]}}
        results[name] |= {who: judged_ndcg(i2t, t2i, corpus.items, marks) for who, marks in judgements.items()}
    return results


def _percent(part: float, whole: float) -> float | None:
    """None if the whole is 0: alignment may have retrieved nothing."""
    return 100 * part / whole if whole else None


def _recall_entry(result: Recall) -> dict[str, Any]:
    return {**result._asdict(), "rsum": result.rsum}
