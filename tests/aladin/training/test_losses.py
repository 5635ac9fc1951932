"""Losses by hand and against torch's own; captions of one picture are never negatives of each other."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div

from aladin.tiny import noise
from mjp.aladin.training.losses import calibrated_scale, graded, infonce, listnet, triplet

OWN = torch.eye(3).bool()
TWICE = torch.eye(3).repeat_interleave(2, 1).bool()  # two captions per picture


def test_the_hardest_negative_by_hand() -> None:
    scores = torch.tensor([[1.0, 0.9, 0.0], [0.2, 0.5, 0.6], [0.0, 0.0, 1.0]])
    rows = [0.2 + 0.9 - 1.0, 0.2 + 0.6 - 0.5, 0.0]
    columns = [0.0, 0.2 + 0.9 - 0.5, 0.0]
    expected = (sum(rows) + sum(columns)) / 3
    torch.testing.assert_close(triplet(scores, OWN, margin=0.2), torch.tensor(expected))


def test_the_warm_up_begins_with_the_mean_of_all_negatives() -> None:
    scores = torch.tensor([[1.0, 0.9, 0.0], [0.2, 0.5, 0.6], [0.0, 0.0, 1.0]])
    rows = [0.1 / 2, 0.3 / 2, 0.0]
    columns = [0.0, 0.6 / 2, 0.0]
    average = (sum(rows) + sum(columns)) / 3
    torch.testing.assert_close(triplet(scores, OWN, margin=0.2, hardness=0.0), torch.tensor(average))
    middle = (triplet(scores, OWN) + triplet(scores, OWN, hardness=0.0)) / 2
    torch.testing.assert_close(triplet(scores, OWN, hardness=0.5), middle)


def test_infonce_with_one_caption_per_picture_is_cross_entropy() -> None:
    scores, target = noise(5, 5), torch.arange(5)
    expected = cross_entropy(scores, target) + cross_entropy(scores.T, target)
    torch.testing.assert_close(infonce(scores, torch.eye(5).bool()), expected)


def test_infonce_leaves_the_other_captions_of_a_picture_out() -> None:
    scores, total = noise(3, 6), torch.tensor(0.0)
    for c in range(6):
        i = c // 2
        others = [k for k in range(6) if k // 2 != i]
        total += cross_entropy(scores[i, [c, *others]].unsqueeze(0), torch.tensor([0])) / 6
        total += cross_entropy(scores[:, c].unsqueeze(0), torch.tensor([i])) / 6
    torch.testing.assert_close(infonce(scores, TWICE), total)


@pytest.mark.parametrize("loss", [triplet, infonce])
def test_a_second_caption_of_the_same_picture_is_no_negative(loss: object) -> None:
    """Picture 0 likes both of its captions as much as can be: neither pushes the other away."""
    scores = torch.full((3, 6), -9.0)
    scores[TWICE] = 9.0
    scores[0, 1] = 20.0
    scores.requires_grad_()
    value: Tensor = loss(scores, TWICE)  # type: ignore[operator]
    value.backward()
    assert scores.grad is not None
    assert value < 1e-6
    assert (scores.grad[TWICE] <= 0).all()  # a true pair is never pushed apart


def test_listnet_is_least_where_the_student_agrees() -> None:
    teacher = noise(4, 6)
    agreed = listnet(teacher, teacher)
    assert all(listnet(noise(4, 6, seed=seed), teacher) > agreed for seed in range(1, 5))
    student = noise(4, 6, seed=9)
    gaps = [
        kl_div(s.log_softmax(1), t.softmax(1), reduction="batchmean")
        for s, t in ((student, teacher), (student.T, teacher.T))
    ]
    torch.testing.assert_close(listnet(student, teacher) - agreed, gaps[0] + gaps[1])


def test_listnet_does_not_teach_the_teacher() -> None:
    student, teacher = noise(3, 3).requires_grad_(), noise(3, 3, seed=1).requires_grad_()
    listnet(student, teacher).backward()
    assert teacher.grad is None
    assert student.grad is not None


def test_the_scale_that_made_the_answers_is_found_again() -> None:
    """Answers are drawn with probability softmax(7 · scores): 7 is the scale that explains them best."""
    scores = torch.rand(100, 8, generator=torch.Generator().manual_seed(0))
    drawn = torch.multinomial((7 * scores).softmax(1), 1, generator=torch.Generator().manual_seed(1))
    same = torch.zeros(100, 8, dtype=torch.bool).scatter(1, drawn, True)
    assert 5 < calibrated_scale(list(zip(scores.split(1), same.split(1), strict=True))) < 10


def test_a_flat_teacher_needs_a_large_scale() -> None:
    scores = 0.02 * torch.eye(6) + 0.001 * noise(6, 6)
    assert calibrated_scale([(scores, torch.eye(6).bool())]) > 50


def test_a_batch_of_one_picture_gives_no_nan() -> None:
    scores = noise(1, 2).requires_grad_()
    for loss in (triplet(scores, torch.ones(1, 2).bool()), infonce(scores, torch.ones(1, 2).bool())):
        loss.backward()
        assert loss.isfinite()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


def test_graded_truth_that_is_certain_is_cross_entropy() -> None:
    scores, target = noise(5, 5), torch.arange(5)
    expected = cross_entropy(scores, target) + cross_entropy(scores.T, target)
    torch.testing.assert_close(graded(scores, torch.eye(5)), expected)


def test_a_picture_of_which_nothing_is_true_teaches_nothing() -> None:
    scores = noise(4, 3).requires_grad_()
    relevance = torch.cat([torch.eye(3), torch.zeros(1, 3)])
    rows = graded(scores, relevance)
    rows.backward()
    assert scores.grad is not None
    expected = cross_entropy(scores[:3], torch.arange(3)) + cross_entropy(scores.T, torch.arange(3))
    torch.testing.assert_close(rows, expected)


def test_several_true_texts_share_the_target() -> None:
    scores = torch.zeros(1, 4)
    relevance = torch.tensor([[1.0, 1.0, 0.0, 0.0]])
    better = torch.tensor([[2.0, 2.0, 0.0, 0.0]])
    worse = torch.tensor([[4.0, 0.0, 0.0, 0.0]])
    assert graded(better, relevance) < graded(scores, relevance)
    assert graded(better, relevance) < graded(worse, relevance)
