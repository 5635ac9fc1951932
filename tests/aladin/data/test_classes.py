"""Words for classes: every name finds its class, kinds are true of what they name, texts stay true when drawn."""

import pytest
import torch

from mjp.aladin.data.classes import (
    CLASSES,
    all_class_texts,
    class_names,
    class_number,
    definitions,
    draw_text,
    kinds,
    kinds_of,
    membership,
    with_article,
)


def test_every_class_is_found_by_its_first_name_unless_another_class_has_it_too() -> None:
    names = [of_class[0] for of_class in class_names()]
    doubles = {name for name in names if names.count(name) > 1}  # the two cranes, the two maillots
    assert doubles == {"crane", "maillot"}
    for number, name in enumerate(names):
        if name not in doubles:
            assert class_number(name) == number
            assert class_number(name.replace(" ", "_")) == number
    assert class_number("EGYPTIAN CAT") == class_number("Egyptian_cat") == 285
    assert class_number("Cardigan") != class_number("cardigan")
    assert class_number("no such thing") is None


@pytest.mark.parametrize(
    ("word", "inside", "outside"),
    [
        ("dog", ["pug", "beagle", "Siberian husky"], ["tabby", "timber wolf", "lion"]),
        ("cat", ["tabby", "Siamese cat"], ["lion", "pug"]),
        ("bird", ["robin", "king penguin", "ostrich"], ["bee", "airliner"]),
        ("vehicle", ["sports car", "airliner", "canoe", "school bus"], ["car wheel", "horse cart wheel", "parachute"]),
        ("musical instrument", ["violin", "drum", "grand piano"], ["microphone", "drumstick"]),
        ("fruit", ["banana", "lemon"], ["broccoli", "pizza"]),
    ],
)
def test_kinds_are_true_of_what_they_name(word: str, inside: list[str], outside: list[str]) -> None:
    assert {class_number(name) for name in inside} <= set(kinds()[word])
    assert not {class_number(name) for name in outside} & set(kinds()[word])


def test_kinds_are_classes_and_the_way_back_agrees() -> None:
    for word, members in kinds().items():
        assert members
        assert len(set(members)) == len(members)
        assert set(members) <= set(range(CLASSES))
        assert all(word in kinds_of(number) for number in members)


def test_a_drawn_text_is_true_of_its_class_and_says_a_name_a_kind_or_the_definition() -> None:
    generator = torch.Generator().manual_seed(0)
    spelt = set(all_class_texts())
    texts = [(number, draw_text(number, generator)) for number in range(0, CLASSES, 3)]
    for number, text in texts:
        assert number in text.classes
        assert text.text in definitions() or any(text.text.endswith(name) for name in spelt)
    member = membership([text for _, text in texts])
    assert member.shape == (len(texts), CLASSES)
    assert [row.nonzero().flatten().tolist() for row in member] == [sorted(text.classes) for _, text in texts]


def test_articles() -> None:
    assert with_article("owl") == "an owl"
    assert with_article("African elephant") == "an African elephant"
    assert with_article("dog") == "a dog"
