"""The front door: help costs nothing, a mistake is one line, and the exit code says which kind it was."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from mjp import __version__
from mjp.cli import main as front
from mjp.cli.main import COMMANDS, main
from mjp.common.errors import InputError
from mjp.common.results import Results, make_results


def python(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


def command(monkeypatch: pytest.MonkeyPatch, run: Any) -> None:
    """Put a command in place of `mjp demo`."""
    fake = SimpleNamespace(parse=lambda arguments, _: arguments, run=run)
    monkeypatch.setattr(front, "import_module", lambda _: fake)


def raising(error: BaseException) -> Any:
    def run(_: Any) -> None:
        raise error

    return run


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"]])
def test_help_names_every_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    said = capsys.readouterr()
    assert all(name in said.out and text in said.out for name, (_, text) in COMMANDS.items())
    assert said.err == ""


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"mjp {__version__}\n"


@pytest.mark.parametrize("word", ["trian", "--verbose", ""])
def test_an_unknown_command_is_an_error_that_names_the_known_ones(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert all(name in said.err for name in (repr(word), *COMMANDS))


def test_help_imports_neither_torch_nor_tyro() -> None:
    done = python("import sys; from mjp.cli.main import main; main(['--help']); print(*sys.modules, sep='\\n')")
    assert done.returncode == 0
    assert not {"torch", "tyro", "timm"} & set(done.stdout.splitlines())


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_does_not_import_torch(name: str) -> None:
    done = python(
        f"""
import sys
from collections.abc import Iterator
from mjp.cli.main import main
try:
    main([{name!r}, "--help"])
except SystemExit as stop:
    sys.exit(9 if "torch" in sys.modules else stop.code)
"""
    )
    assert done.returncode == 0, done.stderr
    assert f"mjp {name}" in done.stdout


@pytest.mark.parametrize("error", [InputError("the ratio is wrong"), OSError("the ratio is wrong")])
def test_bad_input_is_one_line_and_exit_code_2(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command(monkeypatch, raising(error))
    assert main(["demo"]) == 2
    assert capsys.readouterr().err == "mjp demo: the ratio is wrong\n"


def test_a_mistake_of_ours_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    command(monkeypatch, raising(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        main(["demo"])


def test_an_interrupt_ends_quietly(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    command(monkeypatch, raising(KeyboardInterrupt()))
    assert main(["demo"]) == 130
    assert capsys.readouterr().err == "mjp demo: interrupted\n"


def test_a_reader_that_has_gone_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "mjp", "train", "--help"], stdout=write, stderr=subprocess.PIPE, timeout=60
        )
    finally:
        os.close(write)
    assert b"Traceback" not in done.stderr


def test_a_command_gets_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[Any] = []
    command(monkeypatch, got.append)
    assert main(["demo", "--seed", "3"]) == 0
    assert got == [["--seed", "3"]]


def test_the_arguments_of_the_process_are_the_default(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["mjp", "--version"])
    assert main() == 0
    assert capsys.readouterr().out.startswith("mjp ")


def test_with_json_standard_output_holds_the_results_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(arguments: list[str]) -> Results:
        print("for people")
        return make_results("demo", {"arguments": arguments}, {"top1": float("nan")})

    command(monkeypatch, run)
    assert main(["demo", "--seed", "3", "--json"]) == 0
    output = capsys.readouterr()
    results = json.loads(output.out)
    assert (results["kind"], results["settings"], results["top1"]) == ("demo", {"arguments": ["--seed", "3"]}, None)
    assert output.err == "for people\n"


def test_results_are_printed_before_a_command_that_keeps_running_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed: list[str] = []

    def run(_: list[str]) -> Iterator[Results]:
        yield make_results("demo", {}, {})
        printed.append(capsys.readouterr().out)

    command(monkeypatch, run)
    assert main(["demo", "--json"]) == 0
    assert json.loads(printed[0])["kind"] == "demo"


def test_help_into_a_closed_pipe_ends_quietly() -> None:
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m mjp --help | true; exit ${{PIPESTATUS[0]}}"], capture_output=True
    )
    assert done.stderr == b""


def test_an_ascii_terminal_gets_the_help() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-m", "mjp", "eval", "--help"], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "mask ratios" in done.stdout.lower()


def test_a_full_disk_behind_standard_output_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "mjp", "--help"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "No space left" in line
