"""The second channel: lengths stay, one product compares both, and a short text that names classes is left to them."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from aladin.tiny import noise
from mjp.aladin.model.class_channel import LEAST, MOST, ClassChannel, Meant, beside_patches, beside_words
from mjp.aladin.model.class_codes import WIDTH, class_codes
from mjp.aladin.model.codes import Codes


def codes(batch: int, count: int, seed: int) -> Codes:
    valid = torch.ones(batch, count, dtype=torch.bool)
    tokens = normalize(noise(batch, count, 6, seed=seed), dim=-1)
    return Codes(normalize(noise(batch, 8, seed=seed), dim=-1), tokens, valid, ~valid)


def test_both_channels_are_compared_by_one_product_of_unit_vectors() -> None:
    pictures, texts = codes(3, 5, seed=0), codes(2, 4, seed=1)
    whole, patches = noise(3, WIDTH, seed=2), noise(3, 5, WIDTH, seed=3)
    meant = Meant(normalize(noise(2, WIDTH, seed=4), dim=-1), torch.tensor([[0.9], [0.2]]))
    wide_pictures, wide_texts = beside_patches(pictures, whole, patches), beside_words(texts, meant)
    for wide in (wide_pictures, wide_texts):
        torch.testing.assert_close(wide.vector.norm(dim=-1), torch.ones(len(wide.vector)))
        torch.testing.assert_close(wide.tokens.norm(dim=-1), torch.ones(wide.tokens.shape[:2]))
    captions, classes = pictures.vector @ texts.vector.T, normalize(whole, dim=-1) @ meant.codes.T
    shares = meant.share.T
    expected = ((1 - shares**2).sqrt() * captions + shares * classes) / 2**0.5
    torch.testing.assert_close(wide_pictures.vector @ wide_texts.vector.T, expected)


def test_weights_of_words_stay() -> None:
    texts = codes(1, 2, seed=1)
    weighted = texts._replace(tokens=texts.tokens * torch.tensor([0.8, 0.2]).view(1, 2, 1))
    meant = Meant(normalize(noise(1, WIDTH), dim=-1), torch.tensor([[0.5]]))
    torch.testing.assert_close(beside_words(weighted, meant).tokens.norm(dim=-1), torch.tensor([[0.8, 0.2]]))


def channel() -> ClassChannel:
    """One that maps a word vector to itself."""
    network = ClassChannel().eval()
    for parameter in (*network.bend.parameters(), *network.weigh[-1].parameters()):
        torch.nn.init.zeros_(parameter)
    return network


def share(*words: Tensor) -> float:
    """Of classes in a text of these words, which count alike."""
    valid = torch.ones(1, len(words), dtype=torch.bool)
    with torch.no_grad():
        return float(channel()(torch.stack(words).unsqueeze(0), valid).share)


def test_a_word_for_one_class_or_for_many_is_left_to_the_classes_and_any_other_is_not() -> None:
    classes = class_codes()
    assert share(classes[281]) == pytest.approx(MOST)
    assert share(classes[151:269].mean(0)) == pytest.approx(MOST)  # all dogs
    others = [share(noise(WIDTH, seed=seed)) for seed in range(20)]
    assert max(others) < (LEAST + MOST) / 2
    assert min(others) >= LEAST


def test_classes_count_less_the_more_words_count() -> None:
    cat = class_codes()[281]
    shares = [share(*[cat] * count) for count in (1, 2, 3, 6, 12)]
    assert shares == sorted(shares, reverse=True)
    assert shares[2] == pytest.approx((LEAST + MOST) / 2)
    assert shares[-1] == pytest.approx(LEAST, abs=0.01)


def test_padding_counts_nothing() -> None:
    vectors, network = class_codes()[281].expand(2, 6, WIDTH), channel()
    meant = network(vectors, torch.arange(6) < torch.tensor([[1], [6]]))
    alone = network(vectors[:1, :1], torch.ones(1, 1, dtype=torch.bool))
    torch.testing.assert_close(meant.codes[0], alone.codes[0])
    torch.testing.assert_close(meant.share[0], alone.share[0])
    assert meant.share[1] < meant.share[0]
