"""The position study, against scikit-learn and on tables whose answer is known."""

import mjp  # isort: skip  before timm: it makes torchvision importable

from typing import Any

import numpy as np
import pytest
import timm
import torch
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression
from torch import Tensor

from mjp.evaluation.positions import position_table, principal_components, regress, similarity, spectrum

GRID = (6, 9)
SMALL: dict[str, Any] = {
    "img_size": 32,
    "patch_size": 8,
    "depth": 1,
    "embed_dim": 24,
    "num_heads": 2,
    "num_classes": 10,
}


def table(width: int, seed: int = 0) -> Tensor:
    return torch.randn(GRID[0] * GRID[1], width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("width", [8, 100])  # fewer and more dimensions than positions
def test_regression_equals_scikit_learn_on_the_same_folds(width: int) -> None:
    embeddings = table(width)
    ours = regress(embeddings, GRID, folds=5, seed=3)
    order = torch.randperm(len(embeddings), generator=torch.Generator().manual_seed(3))
    rows, columns = np.divmod(np.arange(len(embeddings)), GRID[1])
    index_errors: list[float] = []
    place_errors: list[float] = []
    for test in order.tensor_split(5):
        train = np.setdiff1d(order.numpy(), test.numpy())
        x, held = embeddings[train].numpy(), embeddings[test].numpy()
        for target, errors in ((rows * GRID[1] + columns, index_errors), (np.stack([rows, columns], 1), place_errors)):
            fit = LinearRegression().fit(x, target[train])
            errors.append(np.abs(fit.predict(held) - target[test]).mean())
    assert ours.index_mae == pytest.approx(np.mean(index_errors))
    assert ours.index_std == pytest.approx(np.std(index_errors))
    assert ours.place_mae == pytest.approx(np.mean(place_errors))
    assert ours.place_std == pytest.approx(np.std(place_errors))


def test_a_table_that_knows_its_place_has_no_error() -> None:
    places = torch.cartesian_prod(torch.arange(6.0), torch.arange(9.0)).double()
    mixed = places @ table(24)[:2] + 5
    result = regress(mixed, GRID)
    assert result.place_mae == pytest.approx(0, abs=1e-9)
    assert result.index_mae == pytest.approx(0, abs=1e-9)


def test_components_equal_scikit_learn_up_to_sign() -> None:
    embeddings = table(20)
    scores, shares = principal_components(embeddings)
    pca = PCA(3).fit(embeddings.numpy())
    theirs = torch.from_numpy(pca.transform(embeddings.numpy()))
    assert torch.allclose(scores.abs(), theirs.abs())
    assert shares.tolist() == pytest.approx(pca.explained_variance_ratio_.tolist())


def test_signs_of_components_are_unique() -> None:
    embeddings = table(20)
    assert torch.allclose(principal_components(embeddings)[0], principal_components(embeddings.flip(1))[0])


def test_spectrum_starts_at_one_and_falls() -> None:
    values = spectrum(table(20))
    assert values[0] == 1
    assert (values.diff() <= 0).all()


def test_similarity_is_the_cosine() -> None:
    embeddings = table(20)
    i, j = 4, 17
    expected = embeddings[i] @ embeddings[j] / (embeddings[i].norm() * embeddings[j].norm())
    assert similarity(embeddings)[i, j].item() == pytest.approx(expected.item())
    assert similarity(embeddings).diagonal().tolist() == pytest.approx([1.0] * len(embeddings))


def test_table_of_a_vit_is_its_patch_rows() -> None:
    vit = timm.create_model("deit_tiny_patch16_224", **SMALL)
    found, grid = position_table(mjp.MJP(vit, "paper"))
    assert grid == (4, 4)
    assert torch.equal(found.float(), vit.get_parameter("pos_embed")[0, 1:])


def test_a_model_without_positions_is_refused() -> None:
    with pytest.raises(mjp.InputError, match="no absolute position embeddings to study"):
        position_table(mjp.MJP(timm.create_model("test_resnet"), mjp.variant("A")))
