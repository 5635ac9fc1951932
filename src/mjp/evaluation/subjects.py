"""The models that a command names, each once; a training run that has not ended is taken at its last checkpoint."""

from collections.abc import Sequence
from pathlib import Path

from mjp.models import Subject, find_model, read_weights, subject_of
from mjp.training.unfinished import is_unfinished, load_unfinished


def find_subjects(names: Sequence[str], weights: Path | None) -> list[Subject]:
    tensors = read_weights(weights) if weights else None
    subjects = []
    for name in dict.fromkeys(names):
        folder = Path(name).expanduser()
        if tensors is None and is_unfinished(folder):
            model, step = load_unfinished(folder)
            print(f"{name} is unfinished: taking its last checkpoint, step {step:,}")
            subjects.append(subject_of(name, model))
        else:
            subjects.append(find_model(name, weights=tensors))
    return subjects
