"""Recall, NDCG and retention of retrieval models: alignment head, vector, and both in two stages.

Example: mjp aladin eval out/aladin-distill out/aladin-infonce --data FLICKR8K

Runs that differ only in their seed are also reported as mean and standard deviation; the first model's search latency
and the size of an index are reported too (mjp aladin bench measures these alone). With --mask-ratios the cost of hiding
positions is measured for models on a ViT, and whether it means anything: see docs/aladin.md. For a model of --phase
align, which has no vector yet, only alignment is measured.
"""

from mjp.aladin.evaluate.config import EvalConfig as Options
from mjp.common.results import Results


def run(options: Options) -> Results:
    from mjp.aladin.evaluate.run import evaluate_models

    return evaluate_models(options)
