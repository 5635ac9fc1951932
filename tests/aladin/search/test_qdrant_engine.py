"""The engine inside Qdrant's server, without the server (pip install qdrant-edge-py), ranks as the index does."""

from pathlib import Path
from typing import Any

import pytest
import torch

from aladin.gallery import make_gallery, take_in
from mjp.aladin.index.store import Index
from mjp.aladin.model.aladin import Aladin
from mjp.aladin.search.push import _vectors
from mjp.aladin.search.qdrant import IMAGE, PATCHES, query_words
from mjp.aladin.search.two_stage import by_alignment, by_vector, encode_query

engine = pytest.importorskip("qdrant_edge")
CANDIDATES = 6


def shard(index: Index, folder: Path) -> Any:
    """All pictures of an index, with the settings that a push gives its collection."""
    codes = index.codes(torch.arange(len(index)))
    vectors = [_vectors(codes, row) for row in range(len(index))]
    maxsim = engine.MultiVectorConfig(engine.MultiVectorComparator.MaxSim)
    product = engine.Distance.Dot
    settings = {
        IMAGE: engine.EdgeVectorParams(codes.vector.shape[1], product),
        PATCHES: engine.EdgeVectorParams(codes.tokens.shape[2], product, multivector_config=maxsim),
    }
    folder.mkdir()
    made = engine.EdgeShard.create(str(folder), engine.EdgeConfig(vectors=settings))
    points = [engine.Point(row, vector, {}) for row, vector in enumerate(vectors)]
    made.update(engine.UpdateOperation.upsert_points(points))
    return made


@pytest.mark.parametrize("text", ["sky", "a red sky over the green ground"])
def test_both_stages_in_one_call_give_the_order_and_scores_of_the_index(
    model: Aladin, tmp_path: Path, text: str
) -> None:
    take_in(make_gallery(tmp_path / "pictures", 10), tmp_path / "index", model)
    index, query = Index(tmp_path / "index"), encode_query(model, text)
    expected = by_alignment(index, model, query, by_vector(index, query, CANDIDATES))
    exact = engine.SearchParams(exact=True)
    nearest = engine.Query.Nearest(query.vector[0].tolist(), IMAGE)
    request = engine.QueryRequest(
        CANDIDATES,
        query=engine.Query.Nearest(query_words(model, query), PATCHES),
        prefetches=[engine.Prefetch(CANDIDATES, query=nearest, params=exact)],
        params=exact,
    )
    points = shard(index, tmp_path / "shard").query(request)
    assert [point.id for point in points] == [hit.row for hit in expected]
    assert [point.score for point in points] == pytest.approx([hit.alignment for hit in expected], abs=1e-5)
