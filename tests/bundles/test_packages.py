"""What stages import, and the wheels that a bundle carries."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.bundles import packages
from pipeline.bundles.archive import BundleError
from pipeline.bundles.contents import is_code, trainings
from pipeline.bundles.packages import Platform, packages_of, wheels
from pipeline.dependencies import Graph

ROOT = Path(__file__).parents[2]
GRAPH = Graph.load(ROOT)


def needed(stage: str) -> set[str]:
    """What the first item of a stage imports."""
    item = next(iter(GRAPH.items[stage].values()))
    places = [dep for each in (item, *trainings(GRAPH, item)) for dep in each.deps if is_code(dep)]
    files = [
        path for place in places for path in ((ROOT / place).rglob("*.py") if "." not in place else [ROOT / place])
    ]
    return set(packages_of(ROOT, [path.relative_to(ROOT).as_posix() for path in files]))


COMMON = {"filelock", "numpy", "pandas", "psutil", "pydantic", "pyro", "safetensors", "torch", "tqdm", "typer", "yaml"}
"""What every training imports. Pyro because `pipeline/compute.py` switches its checks off, whatever the model."""
PROBED = {"scipy", "sklearn", "threadpoolctl"}


def test_a_training_needs_no_more_than_it_imports() -> None:
    assert needed("train") == COMMON


def test_an_evaluation_also_needs_what_probes_are_made_of() -> None:
    assert needed("evaluate") == COMMON | PROBED


@pytest.mark.parametrize("stage", [stage for stage in GRAPH.items if GRAPH.items[stage]])
def test_no_stage_needs_dvc_or_mlflow(stage: str) -> None:
    assert not needed(stage) & {"dvc", "mlflow"}


def test_imports_inside_functions_count_only_for_the_stages_own_code(tmp_path: Path) -> None:
    for name, text in {
        "stages/a.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pandas\n"
        "def main():\n    import torch\n    from pipeline import b\n",
        "pipeline/__init__.py": "import numpy\n",
        "pipeline/b.py": "import json, yaml\nfrom . import c\ndef never():\n    import mlflow\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert packages_of(tmp_path, ["stages/a.py"]).keys() == {"numpy", "torch", "yaml"}
    assert packages_of(tmp_path, ["stages/a.py"])["yaml"] == f"pyyaml=={version('pyyaml')}"
    (tmp_path / "stages/a.py").write_text("import (")
    with pytest.raises(BundleError, match="line 1"):
        packages_of(tmp_path, ["stages/a.py"])


def test_wheels_are_asked_for_with_requirements_in_the_versions_of_this_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def download(command: list[str], **_: Any) -> Any:
        asked[:] = command
        (tmp_path / "a-1.whl").write_bytes(b"")
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(packages.subprocess, "run", download)
    found = wheels(["pyro-ppl==1", "torch==2"], Platform("3.13", "manylinux_2_17_aarch64", ("numpy",)), tmp_path)
    assert found == [tmp_path / "a-1.whl"]
    pins = asked[asked.index("-d") + 2 :]
    assert f"pyro-ppl=={version('pyro-ppl')}" in pins
    assert f"opt-einsum=={version('opt-einsum')}" in pins, "what Pyro requires"
    assert not [pin for pin in pins if pin.startswith(("torch", "numpy", "nvidia", "triton"))]
    assert asked[asked.index("--python-version") + 1] == "3.13"
    platforms = [asked[at + 1] for at, word in enumerate(asked) if word == "--platform"]
    assert platforms[0] == "manylinux_2_17_aarch64"
    assert "manylinux2014_aarch64" in platforms
    assert "manylinux_2_28_aarch64" not in platforms
    assert Platform(name="win_amd64").tags == ["win_amd64"]


def test_pips_refusal_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = SimpleNamespace(returncode=1, stderr="ERROR: No matching distribution found for yaml")
    monkeypatch.setattr(packages.subprocess, "run", lambda *_, **__: refused)
    with pytest.raises(BundleError, match=r"cannot download wheels: .*No matching distribution"):
        wheels(["pyyaml==6"], Platform(), tmp_path)
    with pytest.raises(BundleError, match="nobody-has-this is not installed here"):
        wheels(["nobody-has-this==1"], Platform(), tmp_path)
