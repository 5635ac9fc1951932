"""Recall on matrices small enough to rank by hand, with ties and several captions per picture."""

import pytest
import torch

from aladin.tiny import generator, noise
from mjp.aladin.evaluate.metrics import Ranks, folded_recall, overlap, ranks, recall, rerank, rsum_intervals
from mjp.common.errors import InputError

FIVE = torch.arange(3).repeat_interleave(5)  # three pictures, five captions each


def test_ranks_by_hand() -> None:
    scores = torch.tensor([[0.9, 0.1, 0.5, 0.2], [0.8, 0.3, 0.4, 0.7]])
    found = ranks(scores, torch.tensor([0, 0, 1, 1]))
    assert found.i2t.tolist() == [1, 2]  # picture 1: its best caption (0.7) stands behind caption 0
    assert found.t2i.tolist() == [1, 2, 2, 1]


def test_the_best_of_five_captions_gives_the_rank() -> None:
    scores = torch.zeros(3, 15)
    scores[0, 3] = 1.0  # the fourth caption of picture 0 is on top, its others do not matter
    scores[1, [0, 1]] = 2.0  # two foreign captions before
    scores[1, 7] = 1.0
    scores[2] = torch.arange(15, 0, -1.0)  # its own captions are the last five
    assert ranks(scores, FIVE).i2t.tolist() == [1, 3, 11]


def test_ties_count_against_the_scorer() -> None:
    found = ranks(torch.zeros(3, 15), FIVE)
    assert found.i2t.tolist() == [11] * 3  # ten foreign captions before it; its own do not stand in its way
    assert found.t2i.tolist() == [3] * 15


def test_recall_median_and_mean() -> None:
    result = recall(Ranks(torch.tensor([1, 5, 6, 20]), torch.tensor([1, 1, 10, 11, 100])))
    assert result.i2t == (25.0, 50.0, 75.0)
    assert result.t2i == (40.0, 40.0, 60.0)
    assert (result.i2t_median, result.t2i_median) == (5.5, 10.0)
    assert (result.i2t_mean, result.t2i_mean) == (8.0, 24.6)
    assert result.rsum == 290.0


def test_folds_are_galleries_of_their_own() -> None:
    """Both halves are perfect; pictures of different halves are confused, which only the whole notices."""
    scores = torch.block_diag(torch.eye(2), torch.eye(2)) + 5 * torch.block_diag(torch.zeros(2, 2), torch.zeros(2, 2))
    scores[0, 3] = scores[3, 0] = 9.0
    owner = torch.arange(4)
    assert folded_recall((scores,), owner, 2).i2t[0] == 100.0
    assert recall(ranks(scores, owner)).i2t[0] == 50.0
    with pytest.raises(InputError, match="only 4"):
        folded_recall((scores,), owner, 5)


def test_scores_that_are_not_numbers_are_refused() -> None:
    with pytest.raises(InputError, match="not finite"):
        ranks(torch.tensor([[float("nan")]]), torch.tensor([0]))


def test_reranking_everything_is_the_second_stage_alone() -> None:
    first, second, owner = noise(6, 30), noise(6, 30, seed=1), torch.arange(6).repeat_interleave(5)
    second[2, 4:9] = 0.5  # ties stay ties
    for k in (30, 99):
        assert torch.equal(ranks(rerank(first, second, k), owner).i2t, ranks(second, owner).i2t)
        both = ranks(rerank(first.T, second.T, k).T, owner).t2i
        assert torch.equal(both, ranks(second, owner).t2i)


def test_reranking_one_candidate_is_the_first_stage_alone() -> None:
    first, second = noise(6, 30), noise(6, 30, seed=1)
    assert torch.equal(rerank(first, second, 1).argsort(1), first.argsort(1))


def test_reranking_by_hand() -> None:
    first = torch.tensor([[5.0, 4.0, 3.0, 2.0, 1.0]])
    second = torch.tensor([[0.1, 0.3, 0.2, 9.0, 8.0]])
    assert rerank(first, second, 3).argsort(1, descending=True).tolist() == [[1, 2, 0, 3, 4]]


def test_overlap_by_hand() -> None:
    first, second = torch.tensor([[4.0, 3.0, 2.0, 1.0]]), torch.tensor([[4.0, 1.0, 3.0, 2.0]])
    assert overlap(first, second, 1) == 100.0
    assert overlap(first, second, 2) == 50.0
    assert overlap(first, first) == 100.0


def test_intervals_surround_the_rsum_and_pair_the_differences() -> None:
    owner = torch.arange(200).repeat_interleave(5)
    scores = noise(200, 1000) + 2 * (owner == torch.arange(200).unsqueeze(1))
    better = scores + 0.5 * (owner == torch.arange(200).unsqueeze(1))
    found = {"worse": ranks(scores, owner), "better": ranks(better, owner)}
    intervals = rsum_intervals(found, owner, "worse", seed=0)
    for name, each in found.items():
        assert intervals[name]["rsum"].mean == pytest.approx(recall(each).rsum)
        assert intervals[name]["rsum"].low < recall(each).rsum < intervals[name]["rsum"].high
    assert intervals["worse"]["difference"] == (0.0, 0.0, 0.0)
    assert intervals["better"]["difference"].low > 0
    gap = intervals["better"]["difference"]
    assert gap.high - gap.low < intervals["better"]["rsum"].high - intervals["better"]["rsum"].low


def test_intervals_count_captions_not_pictures_when_these_have_unequal_numbers() -> None:
    owner = torch.tensor([0, 0, 0, 0, 1])
    scores = torch.rand(2, 5, generator=generator())
    found = ranks(scores, owner)
    assert rsum_intervals({"a": found}, owner, "a", seed=0)["a"]["rsum"].mean == pytest.approx(recall(found).rsum)
