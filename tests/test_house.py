"""The rules of the house that a machine can check: short files, short functions, private names stay in their room.

Which room may import from which is checked by import-linter (`make lint`, contracts in pyproject.toml).
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import mjp

SOURCE = Path(mjp.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
MAX_FILE_LINES, MAX_FUNCTION_LINES = 300, 50


def room(path: Path) -> str:
    """The folder below mjp, or the module itself."""
    return path.relative_to(SOURCE).parts[0]


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def private_definitions(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def private_uses(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mjp"):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.attr, node.lineno


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_and_functions_are_short(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= MAX_FILE_LINES
    functions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    lengths = {node.name: (node.end_lineno or node.lineno) - node.lineno + 1 for node in functions}
    assert {name: lines for name, lines in lengths.items() if lines > MAX_FUNCTION_LINES} == {}


def test_no_module_imports_a_private_name() -> None:
    imports = [
        f"{path.relative_to(SOURCE)}:{node.lineno} imports {alias.name}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("mjp"))
        for alias in node.names
        if is_private(alias.name)
    ]
    assert imports == []


def test_private_names_stay_in_their_room() -> None:
    trees = {path: ast.parse(path.read_text()) for path in FILES}
    homes: dict[str, set[str]] = defaultdict(set)
    for path, tree in trees.items():
        for name in filter(is_private, private_definitions(tree)):
            homes[name].add(room(path))
    strangers = [
        f"{path.relative_to(SOURCE)}:{line} uses {name} of {', '.join(sorted(homes[name]))}"
        for path, tree in trees.items()
        for name, line in private_uses(tree)
        if is_private(name) and name in homes and room(path) not in homes[name]
    ]
    assert strangers == []
