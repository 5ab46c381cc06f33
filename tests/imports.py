"""Which files of this repository a file imports, read off the source, whether at the top or inside a function.

A module imports the C++ file that it names, and that the headers that it includes.
"""

from __future__ import annotations

import ast
import re
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

    def __init__(self, file: str) -> None:
        self.file = Path(file)
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

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and re.fullmatch(r"\w+\.cpp", node.value):
            self.found.add(self.file.with_name(node.value).as_posix())


@cache
def imports(file: str) -> frozenset[str]:
    """Files of this repository that a file imports."""
    source = (ROOT / file).read_text(encoding="utf-8")
    if not file.endswith(".py"):
        return frozenset(f"pipeline/{name}" for name in re.findall(r'^#include "(.+)"', source, re.MULTILINE))
    visitor = _Imports(file)
    visitor.visit(ast.parse(source))
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
