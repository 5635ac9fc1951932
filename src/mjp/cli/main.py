"""`mjp COMMAND`: find the command, read its options, run it, print what it returns. Only that command is imported."""

import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext, redirect_stdout
from importlib import import_module
from io import TextIOWrapper
from typing import Any

from mjp import __version__
from mjp.common.errors import InputError

JSON = "--json"
JSON_HELP = "With --json the results are printed as JSON on standard output, and everything else on standard error."

# command: (module with an `Options` dataclass and `run(options)`, what it does)
COMMANDS = {
    "train": ("mjp.cli.train", "train a model, plain or MJP, from a recipe; killable and resumable"),
    "eval": ("mjp.cli.eval", "accuracy, consistency and feature shift under the jigsaw, with intervals"),
    "study": ("mjp.cli.study", "what position embeddings have learned, and where the class token looks"),
    "report": ("mjp.cli.report", "one page with the results of several models, and the published figures beside"),
    "attack": ("mjp.cli.attack", "see what a shared gradient gives away of a picture"),
    "attack-update": (
        "mjp.cli.attack_update",
        "see what an update of Flower, PySyft or your own code gives away",
    ),
    "audit": ("mjp.cli.audit", "models × defences × attacks: what leaks, with intervals; killable and resumable"),
    "federate": ("mjp.cli.federate", "federated training, round by round: accuracy, and what every update gives away"),
    "reproduce": (
        "mjp.cli.reproduce",
        "every table of the paper in miniature, with error bars and a verdict on each claim",
    ),
    "jigsaw": ("mjp.cli.jigsaw", "see the jigsaw on a picture and measure the guarantees, in seconds"),
    "segment": ("mjp.cli.segment", "fine-tune UPerNet on a backbone and measure mIoU; killable and resumable"),
    "demo": ("mjp.cli.demo", "all of it on the two shipped models, in minutes, as one page"),
    "app": ("mjp.cli.app", "one local page: drop a photograph, see its jigsaw and what a gradient gives away"),
    "bench": ("mjp.cli.bench", "measure what MJP costs on this machine"),
    "aladin": ("mjp.cli.aladin", "find pictures with words: train and evaluate retrieval models"),
}

HELP = """usage: mjp COMMAND [options]

Masked Jigsaw Puzzle position embeddings for timm models.

commands:
{commands}

mjp COMMAND --help explains a command. mjp --version prints the version.
In Python: model = mjp.MJP(timm.create_model("deit_small_patch16_224"), "paper")"""


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal that knows ASCII alone gets ? for γ, not a traceback
            stream.reconfigure(errors="replace")
    try:
        code = _answer(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has gone, as in `mjp ... | head`
        return _mute(141)
    except OSError as error:  # standard output cannot be written, as on a full disk
        print(f"mjp: {error}", file=sys.stderr)
        return _mute(2)
    return code


def _mute(code: int) -> int:
    """The exit code; Python flushes standard output once more when it ends, which must not fail again."""
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    return code


def _answer(arguments: list[str]) -> int:
    if arguments[:1] == ["--version"]:
        print(f"mjp {__version__}")
        return 0
    return dispatch("mjp", COMMANDS, HELP, arguments)


def dispatch(program: str, commands: dict[str, tuple[str, str]], text: str, arguments: list[str]) -> int:
    """Run the command that the first argument names, or print the help."""
    if not arguments or arguments[0] in ("-h", "--help"):
        width = max(map(len, commands)) + 2
        print(text.format(commands="\n".join(f"  {name:<{width}}{what}" for name, (_, what) in commands.items())))
        return 0
    if arguments[0] not in commands:
        print(f"{program}: unknown command {arguments[0]!r}: choose one of {', '.join(commands)}", file=sys.stderr)
        return 2
    command = import_module(commands[arguments[0]][0])
    name = f"{program} {arguments[0]}"
    if hasattr(command, "COMMANDS"):  # a command that has commands of its own
        return dispatch(name, command.COMMANDS, command.HELP, arguments[1:])
    return _run(name, command, arguments[1:])


def _run(name: str, command: Any, arguments: list[str]) -> int:
    from mjp.common.malloc import keep_freed_memory
    from mjp.common.validate import check_options

    keep_freed_memory()
    as_json = JSON in arguments
    try:
        _refuse_empty_folder(arguments)
        options = _parse(name, command, [argument for argument in arguments if argument != JSON])
        check_options(options)
        _run_and_print(command, options, as_json=as_json)
    except BrokenPipeError:
        raise
    except (InputError, OSError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return 130
    return 0


def _refuse_empty_folder(arguments: list[str]) -> None:
    """An empty name would mean the present folder, which nobody means who has misspelt a shell variable."""
    for flag, value in zip(arguments, [*arguments[1:], None], strict=False):
        if flag in ("--out=", "-o=") or (flag in ("--out", "-o") and value == ""):
            raise InputError("--out is empty: name a folder for the results")


def _parse(name: str, command: Any, arguments: list[str]) -> Any:
    import tyro

    text = command.description() if hasattr(command, "description") else command.__doc__ or ""
    description = f"{text.rstrip()}\n\n{JSON_HELP}"
    if hasattr(command, "parse"):  # a command whose defaults depend on its arguments
        return command.parse(arguments, description)
    return tyro.cli(command.Options, prog=name, args=arguments, description=description)


def _run_and_print(command: Any, options: Any, *, as_json: bool) -> None:
    """With --json standard output gets the results and nothing else: what the command prints goes to stderr."""
    output = sys.stdout
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        outcome = command.run(options)
        for results in outcome if isinstance(outcome, Iterator) else (outcome,):
            if as_json and results is not None:
                print(results.to_json(), end="", file=output, flush=True)


if __name__ == "__main__":
    sys.exit(main())
