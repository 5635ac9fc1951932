"""Recall on dev between epochs."""

from torch import Tensor

from mjp.aladin.data.corpus import Corpus, encode_corpus
from mjp.aladin.evaluate.metrics import ranks, recall
from mjp.aladin.model.aladin import Aladin


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
