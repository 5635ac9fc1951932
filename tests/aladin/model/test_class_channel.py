"""The second channel: lengths stay, one product compares both, words that count decide how much the classes do."""

import torch
from torch.nn.functional import normalize

from aladin.tiny import noise
from mjp.aladin.model.class_channel import GAIN, ClassChannel, Meant, beside_patches, beside_words
from mjp.aladin.model.class_codes import WIDTH
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
    share = meant.share.T
    expected = ((1 - share**2).sqrt() * captions + share * classes) / 2**0.5
    torch.testing.assert_close(wide_pictures.vector @ wide_texts.vector.T, expected)


def test_weights_of_words_stay() -> None:
    texts = codes(1, 2, seed=1)
    weighted = texts._replace(tokens=texts.tokens * torch.tensor([0.8, 0.2]).view(1, 2, 1))
    meant = Meant(normalize(noise(1, WIDTH), dim=-1), torch.tensor([[0.5]]))
    torch.testing.assert_close(beside_words(weighted, meant).tokens.norm(dim=-1), torch.tensor([[0.8, 0.2]]))


def test_the_share_of_classes_falls_with_the_words_that_count_and_padding_counts_nothing() -> None:
    torch.manual_seed(0)
    channel, vectors = ClassChannel().eval(), noise(2, 6, WIDTH)
    valid = torch.arange(6) < torch.tensor([[1], [6]])
    meant = channel(vectors, valid)
    torch.testing.assert_close(meant.share[0], torch.tensor([GAIN]))
    assert meant.share[1] < meant.share[0]
    alone = channel(vectors[:1, :1], valid[:1, :1])
    torch.testing.assert_close(meant.codes[0], alone.codes[0])
