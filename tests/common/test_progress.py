"""Without a terminal, long work prints lines that say how far it is."""

import pytest

from mjp.common import progress
from mjp.common.progress import Progress, duration, track


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress.time, "monotonic", clock.monotonic)
    return clock


@pytest.mark.parametrize("step", [7, 11, 19])
def test_a_line_with_share_and_time_left_at_least_every_30_seconds(
    step: int, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    times: list[float] = []
    for _ in track(range(40), "evaluating"):
        if capsys.readouterr().err:  # of the step before
            times.append(clock.now)
        clock.now += step
    assert times
    assert max(b - a for a, b in zip([100, *times], times, strict=False)) <= 30


def test_a_line_has_share_time_left_and_readings(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(40, "evaluating", initial=10) as steps:
        for _ in range(3):
            clock.now += 7
            steps.advance(loss="2.5")
    captured = capsys.readouterr()
    assert captured.err == "evaluating: 32 % (13 of 40), 3 min 09 s left, loss 2.5\n"
    assert captured.out == ""


def test_short_or_quiet_work_prints_nothing(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    assert list(track(iter("abc"), "reading", total=3)) == ["a", "b", "c"]
    with Progress(2, "other process", quiet=True) as steps:
        clock.now += 100
        steps.advance()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (60, "1 min 00 s"), (3599, "59 min 59 s"), (7500, "2 h 05 min")]
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert duration(seconds) == text
