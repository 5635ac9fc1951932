"""File names may contain anything: terminals get no control characters, programs get names that they can open."""

import json
import os
from pathlib import Path

import pytest

from mjp.common.terminal import as_text, printable


def test_control_characters_and_undecodable_bytes_do_not_reach_a_terminal() -> None:
    assert printable("a\x1b[31m\n\t\u202e" + os.fsdecode(b"\xff")) == "a�[31m����"
    assert printable("Screenshot at 3.04\u202fPM, ünïcødé\u3000日本") == "Screenshot at 3.04\u202fPM, ünïcødé\u3000日本"


@pytest.mark.parametrize("name", ["new\nline", "tab\t", "narrow\u202fspace", "family 👩\u200d👧", "\x1b[31m"])
def test_a_name_in_json_can_be_opened(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("content")
    assert Path(json.loads(json.dumps(as_text(tmp_path / name)))).read_text() == "content"


def test_bytes_that_are_not_text_leave_json_valid() -> None:
    assert as_text(Path(os.fsdecode(b"bad\xff.jpg"))) == "bad�.jpg"
