"""The alignment score against loops, and every way in which padding or an end of a sequence could go wrong."""

from typing import get_args

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from aladin.tiny import noise
from mjp.aladin.model.alignment import align
from mjp.aladin.model.config import Alignment
from mjp.common.errors import InputError

MODES = get_args(Alignment)


def valid_up_to(lengths: list[int], size: int) -> Tensor:
    return torch.arange(size) < torch.tensor(lengths).unsqueeze(1)


def by_loops(patches: Tensor, patch_valid: Tensor, words: Tensor, word_valid: Tensor, mode: str) -> Tensor:
    """The definition, one pair at a time, without padding."""
    scores = torch.zeros(len(patches), len(words), dtype=patches.dtype)
    for i in range(len(patches)):
        for c in range(len(words)):
            v, w = patches[i][patch_valid[i]], words[c][word_valid[c]]
            a = torch.nn.functional.cosine_similarity(v.unsqueeze(1), w.unsqueeze(0), dim=-1)  # (R, L)
            of_words, of_patches = a.max(0).values.sum(), a.max(1).values.sum()
            both = {"MrSw": of_words, "MwSr": of_patches, "sym": of_words + of_patches, "MrAVGw": of_words / len(w)}
            weighted = (w.norm(dim=-1) * a.max(0).values).sum()  # a word is as long as it counts
            scores[i, c] = weighted if mode == "weighted" else both[mode]
    return scores


@pytest.fixture
def batch() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    patches, words = noise(4, 6, 5).double(), noise(7, 8, 5, seed=1).double()
    return patches, valid_up_to([6, 3, 1, 5], 6), words, valid_up_to([8, 1, 3, 5, 2, 8, 4], 8)


@pytest.mark.parametrize("mode", MODES)
def test_it_is_its_definition(mode: Alignment, batch: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    torch.testing.assert_close(align(*batch, mode=mode), by_loops(*batch, mode))


@pytest.mark.parametrize("mode", MODES)
def test_the_quick_ways_are_the_same(mode: Alignment, batch: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    """Tokens of length 1 that are not brought to it again; no padding; and with a gradient, which takes another way."""
    patches, patch_valid, words, word_valid = batch
    every = torch.ones_like(patch_valid)
    ones = normalize(patches, dim=-1), every, words if mode == "weighted" else normalize(words, dim=-1), word_valid
    slow = by_loops(patches, every, words, word_valid, mode)
    torch.testing.assert_close(align(*ones, mode=mode, unit=True), slow)
    torch.testing.assert_close(align(patches.clone().requires_grad_(), *ones[1:], mode=mode).detach(), slow)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("chunk", [1, 50, 400])
def test_chunks_change_nothing(mode: Alignment, chunk: int, batch: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    torch.testing.assert_close(align(*batch, mode=mode, chunk=chunk), align(*batch, mode=mode), rtol=0, atol=1e-12)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("filling", [0.0, 7.0, -7.0])
def test_padding_changes_nothing(mode: Alignment, filling: float, batch: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    patches, patch_valid, words, word_valid = batch
    more_patches = torch.cat([patches, torch.full_like(patches, filling)], 1)
    more_words = torch.cat([words, torch.full_like(words, filling)], 1)
    nothing = [torch.cat([valid, torch.zeros_like(valid)], 1) for valid in (patch_valid, word_valid)]
    wider = align(more_patches, nothing[0], more_words, nothing[1], mode=mode)
    torch.testing.assert_close(wider, align(*batch, mode=mode))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("place", [0, -1])
def test_first_and_last_of_both_sides_count(mode: Alignment, place: int) -> None:
    """A picture and a caption that agree in one token, wherever it is, score more than a pair that agree in none."""
    axes = torch.eye(8)
    patches, words = axes[0].repeat(1, 4, 1), axes[1].repeat(1, 3, 1)
    apart = align(patches, torch.ones(1, 4).bool(), words, torch.ones(1, 3).bool(), mode=mode)
    for side in (patches, words):
        side[:, place] = axes[2]
    assert align(patches, torch.ones(1, 4).bool(), words, torch.ones(1, 3).bool(), mode=mode) > apart


def test_a_query_of_one_word_tells_pictures_apart() -> None:
    patches = noise(5, 6, 4)
    word = patches[3, 2].view(1, 1, 4)
    scores = align(patches, torch.ones(5, 6).bool(), word, torch.ones(1, 1).bool())
    assert scores.argmax() == 3
    torch.testing.assert_close(scores[3, 0], torch.tensor(1.0))


def test_a_maximum_below_zero_stays_below_zero() -> None:
    """Zeros in the place of padding would win against it."""
    patches, word = torch.tensor([[[1.0, 0.0], [0.0, 0.0]]]), torch.tensor([[[-1.0, 0.0]]])
    score = align(patches, torch.tensor([[True, False]]), word, torch.tensor([[True]]))
    torch.testing.assert_close(score, torch.tensor([[-1.0]]))


@pytest.mark.parametrize("mode", MODES)
def test_the_order_of_patches_and_words_does_not_matter(
    mode: Alignment, batch: tuple[Tensor, Tensor, Tensor, Tensor]
) -> None:
    patches, patch_valid, words, word_valid = batch
    p, w = torch.tensor([3, 0, 5, 1, 4, 2]), torch.tensor([7, 2, 0, 1, 3, 6, 4, 5])
    again = align(patches[:, p], patch_valid[:, p], words[:, w], word_valid[:, w], mode=mode)
    torch.testing.assert_close(again, align(*batch, mode=mode))


@pytest.mark.parametrize("mode", MODES)
def test_gradients_are_right(mode: Alignment) -> None:
    patches, words = noise(2, 3, 4).double().requires_grad_(), noise(2, 3, 4, seed=1).double().requires_grad_()
    valid = valid_up_to([3, 2], 3)
    assert torch.autograd.gradcheck(lambda p, w: align(p, valid, w, valid, mode=mode), (patches, words))


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(InputError, match="choose one of MrSw"):
        align(noise(1, 1, 2), torch.ones(1, 1).bool(), noise(1, 1, 2), torch.ones(1, 1).bool(), mode="best")  # type: ignore[arg-type]
