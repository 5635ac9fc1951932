"""Pictures of classes: the class becomes likely where it should, along the data's own covariance, and nowhere else."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from aladin.tiny import generator, noise
from mjp.aladin.data.class_pictures import MAX_ACTIVATION, SIDE, patterns, rectangles, with_class
from mjp.aladin.data.classes import CLASSES, class_number
from mjp.aladin.model.class_codes import WIDTH, ClassCodes

FEATURES = 10


def classes() -> ClassCodes:
    torch.manual_seed(0)
    return ClassCodes(nn.Linear(FEATURES, CLASSES))


def cells(batch: int, count: int = 49) -> Tensor:
    mixing = noise(FEATURES, FEATURES, seed=3)
    return (2.5 + 0.3 * noise(batch, count, FEATURES) @ mixing).clamp(0, MAX_ACTIVATION)


def test_a_code_is_the_word_vector_of_what_the_classifier_says() -> None:
    made, features = classes(), noise(5, 7, FEATURES)
    with torch.no_grad():
        made.classifier.weight.mul_(1000)  # sure of itself
    tokens = made(features)
    assert tokens.shape == (5, 7, FEATURES + WIDTH)
    assert torch.equal(tokens[..., :FEATURES], features)
    said = made.posterior(features)
    sure = said.amax(-1) > 0.999
    assert sure.sum() > 20
    torch.testing.assert_close(tokens[sure][:, FEATURES:], made.codes[said.argmax(-1)[sure]], atol=0.05, rtol=0)
    assert torch.equal(made.posterior(tokens), said)


def test_codes_are_near_where_classes_are() -> None:
    codes = normalize(classes().codes, dim=1)
    assert codes.shape == (CLASSES, WIDTH)
    similar = codes @ codes.T
    tabby, persian, laptop, notebook = (class_number(n) for n in ("tabby", "Persian cat", "laptop", "notebook"))
    assert similar[tabby, persian] > 0.5 > similar[tabby, laptop]
    assert similar[laptop, notebook] > 0.5


def test_a_pattern_is_the_regression_of_features_on_the_logit() -> None:
    made, data = classes(), cells(40).flatten(0, 1)
    looks = patterns(data, made)
    with torch.no_grad():
        logit = made.classifier(data)[:, 4]
    design = torch.stack([logit, torch.ones_like(logit)], 1).double()
    slope = torch.linalg.lstsq(design, data.double()).solution[0]
    torch.testing.assert_close(looks[4].double(), slope, atol=1e-4, rtol=1e-3)
    raised = made.classifier(data[:1] + looks[4]) - made.classifier(data[:1])
    torch.testing.assert_close(raised[0, 4], torch.tensor(1.0))


def test_the_class_appears_inside_the_rectangle_and_the_rest_stays() -> None:
    made, data = classes(), cells(6)
    with torch.no_grad():
        made.classifier.weight.mul_(20)
    numbers = torch.arange(6)
    drawn = with_class(data, numbers, made, patterns(data.flatten(0, 1), made), generator())
    again = generator()
    torch.rand(6, 1, generator=again)
    torch.randn(6, 49, generator=again)
    inside = rectangles(6, 7, again).bool()
    assert torch.equal(drawn[~inside], data[~inside])
    with torch.no_grad():
        before, after = (made.classifier(c)[torch.arange(6), :, numbers][inside] for c in (data, drawn))
    assert (after >= before).all()
    assert after.mean() > before.mean() + 3
    assert drawn.min() >= 0
    assert drawn.max() <= MAX_ACTIVATION


def test_rectangles_are_rectangles_of_the_right_size() -> None:
    for area in rectangles(50, 7, generator()).view(50, 7, 7):
        rows, columns = area.amax(1), area.amax(0)
        assert torch.equal(area, rows.unsqueeze(1) * columns.unsqueeze(0))
        assert SIDE[0] * 7 - 1 <= rows.sum() <= 7
