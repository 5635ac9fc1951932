"""A client's secret key: how it is kept, and what can be drawn from it."""

import os
import pickle
import stat
from pathlib import Path

import pytest
import torch
from scipy.stats import kstest

from mjp.common.errors import InputError
from mjp.common.key_path import default_path
from mjp.common.secret_key import SecretKey

KEY = SecretKey(bytes(range(32)))


def numbers(generator: torch.Generator, count: int = 8) -> torch.Tensor:
    return torch.rand(count, generator=generator)


def test_a_missing_key_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "client.key"
    first = SecretKey.open(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert SecretKey.open(path).check_value == first.check_value
    assert SecretKey.open(tmp_path / "other.key").check_value != first.check_value
    assert [entry.name for entry in path.parent.iterdir()] == ["client.key"]


def test_the_umask_does_not_widen_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        SecretKey.open(tmp_path / "client.key")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "client.key").stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "client.key"
    SecretKey.open(path)
    path.chmod(mode)
    with pytest.raises(InputError, match="chmod 600"):
        SecretKey.open(path)


@pytest.mark.parametrize("content", [b"", b"00" * 31, b"00" * 33, b"zz" * 32, b"\xff\xfe", b"00" * 100_000])
def test_a_file_that_is_not_a_key_is_refused_and_stays(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "client.key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(InputError, match="64 hexadecimal digits"):
        SecretKey.open(path)
    assert path.read_bytes() == content


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be made"):
        SecretKey.open(tmp_path / "file" / "client.key")


def test_it_shows_itself_nowhere(tmp_path: Path) -> None:
    digits = bytes(range(32)).hex()
    assert digits not in repr(KEY) + str(KEY) + KEY.check_value
    with pytest.raises(TypeError):
        pickle.dumps(KEY)


def test_generators_depend_on_the_key_and_every_part_of_the_purpose() -> None:
    purposes: list[tuple[str | int | bytes, ...]] = [("plan", 1), ("plan", 2), ("plan", "1"), ("plan", b"1"), ("plan",)]
    purposes += [("pla", "n1"), ("dither", 1)]
    draws = [numbers(KEY.generator(*purpose)) for purpose in purposes]
    draws.append(numbers(SecretKey(bytes(32)).generator("plan", 1)))
    assert len({tuple(draw.tolist()) for draw in draws}) == len(draws)
    assert torch.equal(draws[0], numbers(KEY.generator("plan", 1)))


def test_a_generator_uses_more_than_the_32_bits_of_a_seed() -> None:
    """Two seeds that differ beyond 32 bits draw the same numbers; two words of the state never do."""
    seeded = [numbers(torch.Generator().manual_seed(seed)) for seed in (5, 5 + 2**32)]
    assert torch.equal(*seeded)  # why seeds are not good enough here
    state = KEY.generator("plan", 1).get_state().view(torch.int64)[3 : 3 + 624]
    assert len(set(state.tolist())) > 620
    assert int(state.min()) >= 0
    assert int(state.max()) < 2**32


def test_its_numbers_are_uniform() -> None:
    draws = torch.cat([numbers(KEY.generator("plan", step), 1000) for step in range(20)])
    assert kstest(draws.numpy(), "uniform").pvalue > 0.01


def test_the_default_key_is_outside_of_every_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert default_path() == tmp_path / "mjp" / "client.key"
    monkeypatch.delenv("XDG_CONFIG_HOME")
    assert default_path() == Path.home() / ".config/mjp/client.key"
