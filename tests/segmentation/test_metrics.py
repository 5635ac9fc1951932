"""mIoU and mAcc are scikit-learn's, and void pixels do not exist."""

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, jaccard_score, recall_score
from sklearn.metrics import confusion_matrix as sklearn_confusion
from torch import Tensor

from mjp.segmentation.metrics import IGNORE, confusion_matrix, intervals, pixel_counts, scores
from mjp.segmentation.train import segmentation_loss


def drawn(seed: int, *, classes: int, truth_classes: int, void: float = 0.2) -> tuple[Tensor, Tensor]:
    """A prediction that is often right, and a truth with void pixels in which the last classes are absent."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randint(truth_classes, (40, 50), generator=generator)
    guess = torch.randint(classes, truth.shape, generator=generator)
    right = torch.rand(truth.shape, generator=generator) < 0.6
    is_void = torch.rand(truth.shape, generator=generator) < void
    return torch.where(right, truth, guess), truth.masked_fill(is_void, IGNORE)


@pytest.mark.parametrize(("classes", "present"), [(2, 2), (11, 11), (11, 7), (150, 60)])
def test_scores_are_those_of_scikit_learn(classes: int, present: int) -> None:
    prediction, truth = drawn(classes, classes=classes, truth_classes=present)
    counted = truth != IGNORE
    y_true, y_pred = truth[counted].numpy(), prediction[counted].numpy()
    confusion = confusion_matrix(prediction, truth, classes)
    assert np.array_equal(confusion.numpy(), sklearn_confusion(y_true, y_pred, labels=range(classes)))
    result = scores(pixel_counts(confusion))
    labels = np.unique(y_true)
    assert result.iou[labels].numpy() == pytest.approx(jaccard_score(y_true, y_pred, labels=labels, average=None))
    assert result.miou.item() == pytest.approx(jaccard_score(y_true, y_pred, labels=labels, average="macro"))
    assert result.macc.item() == pytest.approx(recall_score(y_true, y_pred, labels=labels, average="macro"))
    assert result.accuracy.item() == pytest.approx(accuracy_score(y_true, y_pred))
    assert int(result.iou.isnan().sum()) == classes - len(labels)


def test_what_is_predicted_for_void_pixels_changes_nothing() -> None:
    prediction, truth = drawn(0, classes=5, truth_classes=5)
    changed = torch.where(truth == IGNORE, (prediction + 1) % 5, prediction)
    assert not torch.equal(changed, prediction)
    assert torch.equal(confusion_matrix(changed, truth, 5), confusion_matrix(prediction, truth, 5))


def test_counts_of_pictures_add_up() -> None:
    pairs = [drawn(seed, classes=4, truth_classes=4) for seed in range(3)]
    counts = torch.stack([pixel_counts(confusion_matrix(*pair, 4)) for pair in pairs])
    predictions, truths = (torch.stack(parts) for parts in zip(*pairs, strict=True))
    together = confusion_matrix(predictions, truths, 4)
    assert torch.equal(counts.sum(0), pixel_counts(together))


def test_intervals_hold_the_score_and_are_empty_for_identical_pictures() -> None:
    different = torch.stack(
        [pixel_counts(confusion_matrix(*drawn(seed, classes=4, truth_classes=4), 4)) for seed in range(8)]
    )
    for name, (value, low, high) in intervals(different, seed=0).items():
        assert value == pytest.approx(getattr(scores(different.sum(0)), name).item())
        assert low < value < high
    for value, low, high in intervals(different[:1].expand(8, -1, -1), seed=0).values():
        assert low == pytest.approx(value) == pytest.approx(high)


def test_void_pixels_give_neither_loss_nor_gradient() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 3, 4, 4, generator=generator, requires_grad=True)
    truth = torch.randint(3, (2, 4, 4), generator=generator)
    truth[0] = IGNORE
    loss = segmentation_loss(logits, truth)
    loss.backward()
    assert loss.item() == pytest.approx(torch.nn.functional.cross_entropy(logits[1:], truth[1:]).item())
    assert logits.grad is not None
    assert not logits.grad[0].any()
    assert logits.grad[1].any()


def test_a_batch_of_nothing_but_void_has_loss_zero() -> None:
    logits = torch.zeros(1, 3, 2, 2, requires_grad=True)
    loss = segmentation_loss(logits, torch.full((1, 2, 2), IGNORE))
    loss.backward()
    assert loss.item() == 0
