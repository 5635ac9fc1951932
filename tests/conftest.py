"""Settings of every test: reproducible examples, no timing."""

import os

# before torch starts its threads: the models here are too small to gain from more than one
os.environ.setdefault("OMP_NUM_THREADS", "1")
# a test that would need a model hub must fail, not wait
os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
import torch
from hypothesis import HealthCheck, settings

import mjp  # noqa: F401  before timm, which the test files import first: it makes torchvision importable
from browser import browser  # noqa: F401  a fixture for pages of every room

settings.register_profile(
    "mjp", deadline=None, derandomize=True, max_examples=30, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("mjp")


@pytest.fixture(autouse=True, scope="session")
def _keys_of_tests_alone(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The secret key of whoever runs the tests is not touched."""
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))


@pytest.fixture(autouse=True)
def _same_weights_every_time() -> None:
    """timm draws its weights from torch's global generator."""
    torch.manual_seed(0)
