"""Write requirements.lock: the installed versions of all packages that pyproject.toml needs, directly or not.

    python scripts/lock.py

Run it in a fresh environment, after `pip install ".[dev,sharing,server]"` with a CPU build of torch. torch's own CUDA
packages are not listed, so that a machine without a GPU does not download them. Packages that pyproject.toml does not
need are not listed, either.
"""

from __future__ import annotations

import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
EXTRAS = ("dev", "sharing", "server")  # the tests use them all
PYTHON = ".".join(str(number) for number in sys.version_info[:2])
HEADER = f"""\
# Exact versions of everything installed, written by scripts/lock.py (Python {PYTHON}).
# torch brings its own CUDA packages where its build wants them; they are not listed, so a CPU build stays small.
"""


def needed(requirements: list[str]) -> dict[str, str]:
    """The installed version, by name, of every package that `requirements` need, directly or through other packages.
    CUDA packages are left out. Raises `SystemExit` if a package is not installed.
    """
    found: dict[str, str] = {}
    queue = [(Requirement(text), "") for text in requirements]
    seen: set[tuple[str, str]] = set()
    while queue:
        requirement, extra_of_parent = queue.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra_of_parent}):
            continue
        try:
            installed = distribution(requirement.name)
        except PackageNotFoundError:
            raise SystemExit(
                f"{requirement.name} is not installed: pip install '.[dev,sharing,server]' first"
            ) from None
        name = canonicalize_name(requirement.name)
        if not name.startswith(("nvidia-", "cuda-")) and name != "triton":
            found[name] = installed.version.partition("+")[0]
        for extra in {"", *requirement.extras}:
            if (name, extra) not in seen:
                seen.add((name, extra))
                queue += [(Requirement(text), extra) for text in installed.requires or ()]
    return found


def main() -> None:
    """Write requirements.lock, and print the number of packages in it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *(text for extra in EXTRAS for text in project["optional-dependencies"][extra])]
    pins = needed(wanted)
    lines = "".join(f"{name}=={version}\n" for name, version in sorted(pins.items()))
    (ROOT / "requirements.lock").write_text(HEADER + lines, encoding="utf-8")
    print(f"requirements.lock pins {len(pins)} packages")


if __name__ == "__main__":
    main()
