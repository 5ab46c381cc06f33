"""Which modules of this repository a module imports, read off the source, whether at the top or inside a function."""

from __future__ import annotations

import ast
from collections.abc import Collection
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
OURS = ("pipeline", "stages")


def file_of(module: str) -> str | None:
    """The file of a module, relative to the repository; None where there is none."""
    for name in (f"{module.replace('.', '/')}.py", f"{module.replace('.', '/')}/__init__.py"):
        if (ROOT / name).is_file():
            return name
    return None


class _Imports(ast.NodeVisitor):
    """Collects what is imported while the program runs; what only type checkers see is left out."""

    def __init__(self) -> None:
        self.found: set[str] = set()

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.module and node.module.split(".")[0] in OURS:
            for alias in node.names:
                found = file_of(f"{node.module}.{alias.name}") or file_of(node.module)
                assert found is not None, f"there is no {node.module}.{alias.name}"
                self.found.add(found)

    def visit_Import(self, node: ast.Import) -> None:
        self.found |= {found for alias in node.names if (found := file_of(alias.name))}


@cache
def imports(file: str) -> frozenset[str]:
    """Files of this repository that a file imports."""
    visitor = _Imports()
    visitor.visit(ast.parse((ROOT / file).read_text(encoding="utf-8")))
    return frozenset(visitor.found)


def closure(files: Collection[str], not_through: Collection[str] = ()) -> set[str]:
    """The files and all that they import, directly or not.

    Args:
        not_through: files whose own imports are left out.
    """
    found: set[str] = set()
    waiting = list(files)
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            waiting += [] if file in not_through else imports(file)
    return found
