"""What several files of these tests share: building it takes a second."""

from pathlib import Path

import pytest
import torch

from aladin.gallery import make_gallery, make_model, take_in
from mjp.aladin.model.aladin import Aladin


@pytest.fixture(scope="session")
def retrieval_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("retrieval")


@pytest.fixture(scope="session")
def model(retrieval_home: Path) -> Aladin:
    torch.manual_seed(0)
    return make_model(retrieval_home)


@pytest.fixture(scope="session")
def gallery(retrieval_home: Path) -> Path:
    """Ten pictures; not to be changed."""
    return make_gallery(retrieval_home / "gallery")


@pytest.fixture(scope="session")
def indexed(retrieval_home: Path, gallery: Path, model: Aladin) -> Path:
    """An index of them; not to be changed."""
    take_in(gallery, retrieval_home / "index", model)
    return retrieval_home / "index"


@pytest.fixture(autouse=True)
def cache_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thumbnails of tests do not go to the cache of whoever runs them."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
