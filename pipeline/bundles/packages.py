"""The packages that a stage imports, and their wheels for another machine."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from pipeline.bundles.archive import BundleError
from pipeline.bundles.contents import CODE

ON_THE_MACHINE = ("torch", "triton", "setuptools")
"""Distributions that never travel: torch, and what only a build of it for the machine can bring."""
CALLED = ("pipeline/files.py",)
"""Files that import packages inside functions which every stage calls."""
_DRIVERS = ("nvidia-", "cuda-")


@dataclass(frozen=True)
class Platform:
    """The machine that wheels are for.

    Attributes:
        python: its version of Python, such as "3.12".
        name: as in the names of wheels; those for an older glibc than it names are taken, too.
        has: distributions that it has already, beside torch.
    """

    python: str = "3.12"
    name: str = "manylinux_2_28_x86_64"
    has: tuple[str, ...] = ()

    @property
    def tags(self) -> list[str]:
        """The names of all platforms whose wheels it can use."""
        found = re.fullmatch(r"manylinux_2_(\d+)_(\w+)", self.name)
        if not found:
            return [self.name]
        newest, machine = int(found[1]), found[2]
        names = [f"manylinux_2_{minor}_{machine}" for minor in range(newest, 4, -1)]
        return [*names, *(f"manylinux{year}_{machine}" for year in (2014, 2010, 1)), f"linux_{machine}"]


def packages_of(root: Path, code: Iterable[str]) -> dict[str, str]:
    """What files of the library import that is neither the library nor Python's own: `name==version` by module.

    Of `code`, every import counts; of the files that these import, only those at the top of a file, which always
    happen: no training needs what the tracking of runs imports to deliver them.
    """
    wanted = {file for file in code if file.endswith(".py")}
    modules: set[str] = set()
    waiting, seen = sorted(wanted), set(wanted)
    while waiting:
        file = waiting.pop()
        outside, inside = _imports(root / file, everywhere=file in wanted or file in CALLED)
        modules |= outside
        for each in {path for module in inside for path in _files(root, module)} - seen:
            seen.add(each)
            waiting.append(each)
    return {module: _pin(module) for module in sorted(modules)}


def wheels(packages: Collection[str], platform: Platform, folder: Path) -> list[Path]:
    """Download the wheels of packages, with all that they require, into `folder`.

    Args:
        packages: `name==version`, as `packages_of`.

    Raises:
        BundleError: pip finds no wheel for the platform, or no network.
    """
    pins = _with_requirements(packages, {*ON_THE_MACHINE, *map(_canonical, platform.has)})
    folder.mkdir(parents=True, exist_ok=True)
    target = ["--only-binary=:all:", "--no-deps", "--implementation", "cp", "--python-version", platform.python]
    target += [word for tag in platform.tags for word in ("--platform", tag)]
    command = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", *target]
    done = subprocess.run([*command, "-d", str(folder), *pins], capture_output=True, text=True)
    if done.returncode:
        raise BundleError(f"cannot download wheels: {' '.join(done.stderr.split())[-600:]}")
    return sorted(folder.glob("*.whl"))


def _with_requirements(packages: Collection[str], without: Collection[str]) -> list[str]:
    """Packages and all that they require but `without`, in the versions installed here."""
    from packaging.requirements import Requirement

    found: dict[str, str] = {}
    waiting = [pin.partition("==")[0] for pin in packages]
    while waiting:
        name = _canonical(waiting.pop())
        if name in found or name in without or name.startswith(_DRIVERS):
            continue
        try:
            installed = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            raise BundleError(f"{name} is not installed here: which version to carry is unknown") from None
        found[name] = installed.version.partition("+")[0]
        for text in installed.requires or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)
    return [f"{name}=={version}" for name, version in sorted(found.items())]


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@functools.cache
def _distributions() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()


@functools.cache
def _pin(module: str) -> str:
    """`name==version` of the distribution that holds a module; only the module's name if it is not installed."""
    names = _distributions().get(module)
    return f"{_canonical(names[0])}=={metadata.version(names[0]).partition('+')[0]}" if names else module


@functools.lru_cache(maxsize=4096)
def _imports_of(path: Path, time: int, everywhere: bool) -> tuple[frozenset[str], frozenset[str]]:
    visitor = _Imports(everywhere)
    visitor.visit(ast.parse(path.read_text(encoding="utf-8")))
    return frozenset(visitor.outside), frozenset(visitor.inside)


def _imports(path: Path, *, everywhere: bool) -> tuple[frozenset[str], frozenset[str]]:
    """Modules outside and inside the library that a file imports."""
    try:
        return _imports_of(path, path.stat().st_mtime_ns, everywhere)
    except SyntaxError as error:
        raise BundleError(f"{path}, line {error.lineno}: {error.msg}") from None


class _Imports(ast.NodeVisitor):
    """Collects what is imported, except for type checkers only."""

    def __init__(self, everywhere: bool) -> None:
        self.everywhere = everywhere
        self.outside: set[str] = set()
        self.inside: set[str] = set()

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if self.everywhere:
            self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.module and not node.level:
            self._add(node.module, *(f"{node.module}.{alias.name}" for alias in node.names))

    def _add(self, module: str, *parts: str) -> None:
        top = module.split(".")[0]
        if top in CODE:
            self.inside |= {module, *parts}
        elif top not in sys.stdlib_module_names:
            self.outside.add(top)


def _files(root: Path, module: str) -> list[str]:
    """The file of a module, and those of the packages around it; none if it is not a module."""
    parts = module.split(".")
    packages = ["/".join([*parts[:count], "__init__.py"]) for count in range(1, len(parts) + 1)]
    return [file for file in [*packages, f"{'/'.join(parts)}.py"] if (root / file).is_file()]
