"""The command line. One file per command; `main` finds it by name and imports nothing else.

A command is a module with a docstring (its help), a dataclass `Options`, and

    run(options) -> Results | None

which prints for people and returns `mjp.common.results.Results` for programs: `main` prints them as JSON if --json was
given, and sends everything that `run` prints to standard error. None means that there is nothing to say (the other
processes of torchrun). A command that keeps running after its results are ready (`aladin serve`) yields them instead.
A command whose defaults depend on its arguments has `parse(arguments, description)` in place of `Options`.
"""
