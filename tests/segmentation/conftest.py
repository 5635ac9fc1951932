"""One data set for all tests of segmentation."""

from pathlib import Path

import pytest

from segmentation.scenes import write_scenes


@pytest.fixture(scope="session")
def camvid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_scenes(tmp_path_factory.mktemp("scenes") / "camvid")
