"""One folder of pictures for all tests of training."""

from pathlib import Path

import pytest

from training.runs import make_pictures


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pictures(tmp_path_factory.mktemp("pictures") / "data")
