"""Do everyday queries find ordinary pictures? P@5 of the queries of everyday_queries.yaml over folders of classes.

    python tools/check_everyday.py MODEL[,MODEL...] CACHE FOLDER [FOLDER ...]

Several models are seeds of one: the means over their queries, and the deviation between them. A query is "fitted" if it
is, without its article, a name or a kind of ImageNet's classes: those words the class channel was trained on.
"""

import re
import sys
from pathlib import Path
from statistics import mean, stdev

import torch
import yaml

import mjp  # noqa: F401  before timm
from mjp.aladin.data.classes import class_names, kinds
from mjp.aladin.data.corpus import Corpus, encode_corpus
from mjp.aladin.evaluate.labels import label_data, precision
from mjp.aladin.evaluate.metrics import rerank
from mjp.aladin.evaluate.scorers import ALIGNMENT, TWO_STAGE, VECTOR, scores_of
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.model.shipped import find_aladin

QUERIES = Path(__file__).parent / "everyday_queries.yaml"
K = 20  # candidates that a search re-ranks unless it is told otherwise


def main(names: list[str], cache: Path, folders: list[Path]) -> None:
    models = [find_aladin(name, searchable=True) for name in names]
    for folder in folders:
        answers = yaml.safe_load(QUERIES.read_text(encoding="utf-8"))
        pictures = label_data(folder)[0]
        answers = {text: classes for text, classes in answers.items() if set(classes) & set(pictures.classes)}
        results = torch.stack([_precisions(model, folder, answers, cache) for model in models])  # (M, scorers, Q)
        _print(folder, answers, results)


def _precisions(model: Aladin, folder: Path, answers: dict[str, list[str]], cache: Path) -> torch.Tensor:
    """(scorers, Q): P@5 by vector, alignment and two stages."""
    pictures, items = label_data(folder)
    corpus = Corpus(model, items, cache, workers=0, max_unreadable=0)
    codes, _ = encode_corpus(model, corpus)
    labels = [pictures.classes[label] for label in pictures.labels]
    right = torch.tensor([[label in classes for label in labels] for classes in answers.values()])
    scores = {name: matrix.T for name, matrix in scores_of(model, codes, model.encode_texts(list(answers))).items()}
    scores[TWO_STAGE] = rerank(scores[VECTOR], scores[ALIGNMENT], K)
    return torch.stack([precision(scores[name], right)[:, 0] for name in (VECTOR, ALIGNMENT, TWO_STAGE)])


def _print(folder: Path, answers: dict[str, list[str]], results: torch.Tensor) -> None:
    fitted = torch.tensor([_is_fitted(text) for text in answers])
    print(f"\n{folder}: P@5 in percent, mean of {len(results)} models\n{'':<24}vector  alignment  two stages")
    for text, values, is_fitted in zip(answers, 100 * results.mean(0).T, fitted, strict=True):
        print(f"{text:<24}{values[0]:<8.0f}{values[1]:<11.0f}{values[2]:<12.0f}{'fitted' if is_fitted else ''}")
    for title, chosen in (("all", fitted | True), ("fitted", fitted), ("not fitted", ~fitted)):
        if bool(chosen.any()):
            cells = [_spread(100 * results[:, scorer, chosen].mean(1)) for scorer in range(3)]
            print(
                f"{title}, {int(chosen.sum())} queries: vector {cells[0]}, alignment {cells[1]}, two stages {cells[2]}"
            )


def _spread(values: torch.Tensor) -> str:
    numbers = values.tolist()
    return f"{mean(numbers):.1f}" + (f" ± {stdev(numbers):.1f}" if len(numbers) > 1 else "")


def _is_fitted(text: str) -> bool:
    names = {name.lower() for synonyms in class_names() for name in synonyms}
    return re.sub("^an? ", "", text) in names | set(kinds())


if __name__ == "__main__":
    main(sys.argv[1].split(","), Path(sys.argv[2]), [Path(folder) for folder in sys.argv[3:]])
