"""NDCG and ROUGE-L by hand, and against scikit-learn."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from aladin.tiny import noise
from mjp.aladin.data.captions import Captioned
from mjp.aladin.evaluate.relevance import judged_ndcg, ndcg, read_judgements, rouge_l, rouge_relevance
from mjp.common.errors import InputError

DOGS = Captioned(Path("dogs.jpg"), ("two dogs run", "dogs on grass"), "test")
SNOW = Captioned(Path("snow.jpg"), ("snow on a hill", "a hill"), "test")


def test_ndcg_by_hand() -> None:
    """Ranked: relevance 0, 3, 1. Best possible: 3, 1, 0."""
    value = ndcg(torch.tensor([[9.0, 5.0, 1.0]]), torch.tensor([[0.0, 3.0, 1.0]]), 3)
    expected = (3 / math.log2(3) + 1 / 2) / (3 + 1 / math.log2(3))
    assert value.item() == pytest.approx(expected)


@pytest.mark.parametrize("k", [1, 5, 25, 100])
def test_ndcg_is_scikit_learns(k: int) -> None:
    scores, relevance = noise(6, 40).double(), torch.rand(6, 40, generator=torch.Generator().manual_seed(1)).double()
    assert ndcg(scores, relevance, k).mean().item() == pytest.approx(
        ndcg_score(relevance.numpy(), scores.numpy(), k=k), rel=1e-9
    )


def test_ties_stand_in_their_worst_order() -> None:
    flat = ndcg(torch.zeros(1, 3), torch.tensor([[1.0, 0.0, 0.0]]), 3)
    assert flat.item() == pytest.approx(1 / math.log2(4))


def test_rouge_by_hand() -> None:
    """Common: the cat on mat, 4 words; precision 4/6, recall 4/5, β 1.2."""
    precision, recall, weight = 4 / 6, 4 / 5, 1.2**2
    expected = (1 + weight) * precision * recall / (recall + weight * precision)
    assert rouge_l("The cat sat on the mat .", "the cat on a mat") == pytest.approx(expected)
    assert rouge_l("a dog", "two cats") == 0.0
    assert rouge_l("A dog!", "a dog") == pytest.approx(1.0)


def longest_common(a: list[str], b: list[str]) -> int:
    table = np.zeros((len(a) + 1, len(b) + 1), int)
    for i, left in enumerate(a):
        for j, right in enumerate(b):
            table[i + 1, j + 1] = table[i, j] + 1 if left == right else max(table[i, j + 1], table[i + 1, j])
    return int(table[-1, -1])


sentences = st.lists(st.sampled_from("abcde"), min_size=1, max_size=63)


@given(sentences, sentences)
def test_the_bits_find_the_longest_common_subsequence(a: list[str], b: list[str]) -> None:
    common = longest_common(a, b)
    precision, recall = common / len(a), common / len(b)
    expected = (1 + 1.2**2) * precision * recall / (recall + 1.2**2 * precision) if common else 0.0
    assert rouge_l(" ".join(a), " ".join(b)) == pytest.approx(expected)


def test_a_picture_is_as_relevant_as_its_best_caption() -> None:
    relevance = rouge_relevance([DOGS, SNOW])
    assert relevance.shape == (2, 4)
    assert relevance[0, :2].tolist() == [1.0, 1.0]
    best = max(rouge_l("snow on a hill", caption) for caption in DOGS.captions)
    assert relevance[0, 2].item() == pytest.approx(best)
    assert relevance[0, 3] == 0.0


def test_people_judge_only_some_pairs(tmp_path: Path) -> None:
    """Caption 3 has the highest score and was not judged: it neither helps nor harms."""
    (tmp_path / "crowd.txt").write_text(
        "dogs.jpg\tdogs.jpg#0\t1\t3\t0\ndogs.jpg\tsnow.jpg#0\t0\t0\t3\ndogs.jpg\tdogs.jpg#1\t0.5\t1\t1\n"
        "other.jpg\tdogs.jpg#1\t1\t3\t0\n"
    )
    scores = torch.tensor([[0.5, 0.1, 0.7, 9.0], [0.0, 0.0, 0.0, 0.0]])
    found = judged_ndcg(scores, scores.T, [DOGS, SNOW], read_judgements(tmp_path / "crowd.txt"))
    expected = (1 / math.log2(3) + 0.5 / 2) / (1 + 0.5 / math.log2(3))  # ranked: snow 0, dogs 1, dogs .5
    assert found["i2t"] == pytest.approx(100 * expected)
    assert (found["i2t_queries"], found["t2i_queries"]) == (1, 0)


def test_experts_give_marks_from_one_to_four(tmp_path: Path) -> None:
    (tmp_path / "experts.txt").write_text("dogs.jpg\tdogs.jpg#0\t4\t4\t4\ndogs.jpg\tsnow.jpg#0\t1\t1\t1\n")
    scores = torch.tensor([[0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    found = judged_ndcg(scores, scores.T, [DOGS, SNOW], read_judgements(tmp_path / "experts.txt"))
    assert found["i2t"] == pytest.approx(100 / math.log2(3))


def test_a_split_that_nobody_judged_has_no_figure(tmp_path: Path) -> None:
    (tmp_path / "crowd.txt").write_text("a.jpg\tb.jpg#0\t1\t3\t0\n")
    found = judged_ndcg(torch.zeros(2, 4), torch.zeros(4, 2), [DOGS, SNOW], read_judgements(tmp_path / "crowd.txt"))
    assert found == {"i2t": None, "i2t_queries": 0, "t2i": None, "t2i_queries": 0}


@pytest.mark.parametrize(
    "line", ["a.jpg a.jpg#0 1", "a.jpg\ta.jpg#0\tyes", "a.jpg\ta.jpg#0", "a.jpg\ta.jpg\t1", "", "a\ta#0\tnan"]
)
def test_a_malformed_judgement_is_refused_by_its_line(tmp_path: Path, line: str) -> None:
    for name, good in (("crowd.txt", "a.jpg\ta.jpg#0\t1"), ("experts.txt", "a.jpg\ta.jpg#0\t1\t2\t3")):
        (tmp_path / name).write_text(f"{good}\n{line}\n{good}\n")
        with pytest.raises(InputError, match=rf"{name}, line 2: .* is not a judgement"):
            read_judgements(tmp_path / name)
