"""The one list of what results depend on: against DVC's own expansion, and against what the code imports."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from dvc.parsing import DataResolver
from dvc.repo import Repo

from pipeline.dependencies import Graph, Item
from pipeline.errors import UserError
from pipeline.params import parse_params
from pipeline.profiles import Profiles
from pipeline.studies import file_of
from pipeline.systems import SYSTEMS

ROOT = Path(__file__).parents[1]
STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
QUICK = Profiles(ROOT).params_path("quick").read_text(encoding="utf-8")


def with_own_images() -> str:
    """The profile quick with a run on own images, which lie outside the repository."""
    values = yaml.safe_load(QUICK)
    own = {"path": "/photos of pets/", "format": "folder", "test_part": False, "classes": ["cat", "dog"]}
    values["own_images"] = {"pets": {**own, "channels": 1, "side": 28, "fit": "pad"}}
    values["datasets"]["mine"] = {**values["datasets"]["digits"], "source": "pets"}
    values["runs"]["vae-mine"] = {**values["runs"]["vae-digits"], "dataset": "mine"}
    return yaml.safe_dump(values)


PROFILES = {
    **{profile.name: Profiles(ROOT).params_path(profile.name).read_text() for profile in Profiles(ROOT).all()},
    "own images": with_own_images(),
    # The same angle may be written in several ways, each of which is a name.
    "angles": re.sub(r"(?<=\nsweep:\n  angles: ).*", "[45.0, 33.3333333, 60, 1.0e-7]", QUICK),
}
"""The content of params.yaml."""


@cache
def graph_of(profile: str) -> tuple[Graph, dict[str, Any]]:
    values = yaml.safe_load(PROFILES[profile])
    return Graph(STAGES, values), parse_params(values).model_dump(mode="json")


@pytest.mark.parametrize("profile", PROFILES)
def test_items_are_expanded_as_dvc_expands_them(profile: str, tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(PROFILES[profile], encoding="utf-8")
    with Repo.init(str(tmp_path), no_scm=True) as repo:
        theirs = DataResolver(repo, str(tmp_path), {"stages": STAGES}).resolve()["stages"]
    graph, _ = graph_of(profile)
    ours = {item.label: item for items in graph.items.values() for item in items.values()}
    assert ours.keys() == theirs.keys()
    for label, item in ours.items():
        entry = theirs[label]
        outs = [each for kind in ("outs", "metrics", "plots") for each in entry.get(kind, [])]
        assert list(item.deps) == entry["deps"], label
        assert list(item.params) == entry.get("params", []), label
        assert list(item.outs) == [each if isinstance(each, str) else next(iter(each)) for each in outs], label


def test_settings_follow_what_an_item_reads() -> None:
    graph, values = graph_of("own images")
    run = "vae-digits"
    settings = graph.settings("evaluate", run, values)
    dataset = values["runs"][run]["dataset"]
    used = {"runs": {run: values["runs"][run]}, "datasets": {dataset: values["datasets"][dataset]}}
    own_sections = {name: values[name] for name in ("evaluate", "failures")}
    assert settings == used | own_sections, "the run and its data set through the weights; the device is no setting"
    sweep = next(iter(graph.items["sweep"]))
    found = graph.settings("sweep", sweep, values)
    assert f"{found['item']['run']}-{found['item']['angle']}" == sweep
    assert found["sweep"].keys() == {"replicas", "training_share"}
    own = graph.settings("evaluate", "vae-mine", values)
    assert (own["own_images"], own["datasets"].keys()) == (values["own_images"], {"mine"})


def test_the_diagram_in_the_readme_names_every_stage() -> None:
    diagram = (ROOT / "README.md").read_text(encoding="utf-8").split("```mermaid")[1].split("```")[0]
    names = {name for box in re.findall("<b>(.*?)</b>", diagram) for name in box.split(", ")}
    assert names == {name.removesuffix("_sets") for name in STAGES}


def test_an_unknown_item_or_parameter_is_named() -> None:
    graph, _ = graph_of("quick")
    with pytest.raises(UserError, match="train has no 'nobody'"):
        graph.item("train", "nobody")
    with pytest.raises(UserError, match=r"uses \$\{runs\}, which is not in params.yaml"):
        _ = Graph({"train": STAGES["train"]}, {"profile": "p"}).items


def source_of(module: str) -> str | None:
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
        if node.module and node.module.split(".")[0] in ("pipeline", "stages"):
            for alias in node.names:
                found = source_of(f"{node.module}.{alias.name}") or source_of(node.module)
                assert found is not None, f"there is no {node.module}.{alias.name}"
                self.found.add(found)

    def visit_Import(self, node: ast.Import) -> None:
        self.found |= {found for alias in node.names if (found := source_of(alias.name))}

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and re.fullmatch(r"\w+\.cpp", node.value):
            self.found.add(self.file.with_name(node.value).as_posix())


@cache
def imports(file: str) -> frozenset[str]:
    """Files of this repository that a file imports, the C++ file that it names, and the headers of that."""
    source = (ROOT / file).read_text(encoding="utf-8")
    if not file.endswith(".py"):
        return frozenset(f"pipeline/{name}" for name in re.findall(r'^#include "(.+)"', source, re.MULTILINE))
    visitor = _Imports(file)
    visitor.visit(ast.parse(source))
    return frozenset(visitor.found)


def closure(files: Collection[str], not_through: Collection[str] = ()) -> set[str]:
    """The files and all that they import, directly or not, but for what files in `not_through` import."""
    found: set[str] = set()
    waiting = list(files)
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            waiting += [] if file in not_through else imports(file)
    return found


NOT_FOLLOWED = {
    "stages/workspace.py": "checks, tracks and writes",
    "stages/tracked.py": "tracks",
    "pipeline/studies/__init__.py": "finds a study's module, which is known by the item",
    "pipeline/context.py": "opens, loads and trains by what other modules do, and remembers it",
    "pipeline/params.py": "checks params.yaml",
    "pipeline/shared_params.py": "checks params.yaml",
    "pipeline/systems/__init__.py": "lists all systems; which one is used is known by the item",
    "pipeline/tracking/__init__.py": "records runs",
}
"""Files whose own imports are no dependency of a stage, and why."""
NO_DEPENDENCY = {
    **NOT_FOLLOWED,
    "pipeline/dependencies.py": "reads dvc.yaml",
    "pipeline/errors.py": "messages",
    "pipeline/files.py": "writes files whole or not at all",
    "pipeline/layout.py": "where files lie",
    "pipeline/kernels.py": "compiles kernels and finds them again; their sources are dependencies",
    "pipeline/memory.py": "refuses what does not fit",
    "pipeline/settings.py": "the form of settings; their values are parameters",
    "pipeline/data/sources.py": "where files are downloaded from, and what they are called",
    "pipeline/data/datasets.py": "reads and writes the file of a data set",
    "pipeline/learning/checkpoints.py": "reads and writes files of tensors",
    "pipeline/results/outcome.py": "how a result is written",
}
"""Code that no number depends on, and why: an edit of it makes nothing stale."""
SYSTEMS_STUDIES = {
    stage: f"pipeline/systems/{system}/experiments"
    for system in ("regression", "attention")
    for stage in (system, f"{system}_sets")
}
"""Stages that import studies by the names in their entries, and where these lie."""


def is_dependency(file: str) -> bool:
    """Whether a result changes with the file. Settings are declared in code, but their values come from params.yaml."""
    return file not in NO_DEPENDENCY and Path(file).name not in ("settings.py",) and file != "stages/__init__.py"


def system_files(stage: str, variant: str) -> list[str]:
    """What a stage imports by the name of a run's system."""
    package = f"pipeline/systems/{variant}"
    more = {
        "evaluate": f"{package}/evaluation/__init__.py",
        "equivariance": f"{package}/equivariance.py",
        "routing": f"{package}/routing.py",
        "sweep": f"{package}/sweep.py" if SYSTEMS[variant].has("sweep") else "pipeline/probes/sweep.py",
    }
    model = f"{package}/model/{SYSTEMS[variant].model.split('.')[0]}.py"
    return [model, more[stage]] if stage in more else [model]


def imported(item: Item, values: dict[str, Any]) -> set[str]:
    """Files that an item's command runs through."""
    study = file_of(item.stage)
    start = [study.relative_to(ROOT).as_posix() if study else f"stages/{item.stage}.py"]
    section = values.get(item.stage, {})
    entry = section.get(item.name) if isinstance(section, dict) else None
    if item.stage in SYSTEMS_STUDIES:
        studies = entry["studies"].values() if item.stage.endswith("_sets") else [entry]
        start += [f"{SYSTEMS_STUDIES[item.stage]}/{study['study']}.py" for study in studies]
    for run in runs_of(item):
        start += system_files(item.stage, values["runs"][run]["variant"])
    if item.stage in ("figures", "tables"):
        start += [file.relative_to(ROOT).as_posix() for file in ROOT.glob("pipeline/systems/*/report/*.py")]
    return closure(start, NOT_FOLLOWED)


def runs_of(item: Item) -> list[str]:
    """The trained runs that an item makes or reads."""
    return [path.removeprefix("models/") for path in (*item.deps, *item.outs) if path.startswith("models/")]


def covered(file: str, places: Iterable[str]) -> bool:
    return any(file == place or file.startswith(f"{place}/") for place in places)


@pytest.mark.parametrize("profile", [name for name in PROFILES if name not in ("quick", "angles")])
def test_every_item_depends_on_all_the_code_it_runs(profile: str) -> None:
    """Directly, or through the folder of a trained run, which changes with the code that trains. With own images, the
    profile quick has its other items, too.
    """
    graph, values = graph_of(profile)
    missing = {}
    for items in graph.items.values():
        for item in items.values():
            places = list(item.deps)
            for run in runs_of(item):
                places += graph.item("train", run).deps
            needed = [file for file in imported(item, values) if is_dependency(file)]
            lost = sorted(file for file in needed if not covered(file, places))
            if lost:
                missing[item.label] = lost
    assert missing == {}


def test_kernels_and_what_they_include_are_imported() -> None:
    graph, values = graph_of("quick")
    files = imported(graph.item("train", "matrix-toys"), values)
    routing = "pipeline/systems/matrix_capsules/model/em_routing.cpp"
    assert {file for file in files if not file.endswith(".py")} == {"pipeline/kernels.h", routing}


def test_no_stage_depends_on_code_it_does_not_run() -> None:
    """One item at least runs through a file; a stage that cannot choose by system names the files of all."""
    used: dict[tuple[str, str], bool] = {}
    for profile in PROFILES:
        graph, values = graph_of(profile)
        for items in graph.items.values():
            for item in items.values():
                files = imported(item, values)
                for place in item.deps:
                    if place.startswith(("pipeline/", "stages/")):
                        hit = any(covered(file, [place]) for file in files)
                        used[item.stage, place] = used.get((item.stage, place), False) or hit
    assert [each for each, hit in used.items() if not hit] == []


def test_no_system_imports_another_shared_rooms_import_no_system_and_the_library_no_stage() -> None:
    above = ("pipeline/page/", "pipeline/report/", "pipeline/studies/")
    allowed = ("params.py", "systems/__init__.py", "cli.py", "doctor.py", "models.py", "operations/publish.py")
    wrong = []
    for path in (ROOT / "pipeline").rglob("*.py"):
        file = path.relative_to(ROOT).as_posix()
        own = "/".join(file.split("/")[:3]) if file.startswith("pipeline/systems/") else None
        for other in imports(file):
            if other.startswith("stages/"):
                wrong.append(f"{file} imports {other}")
            if not other.startswith("pipeline/systems/") or other == "pipeline/systems/system.py":
                continue
            if file.removeprefix("pipeline/") in allowed or file.startswith(above):
                continue
            if other == "pipeline/systems/__init__.py" or own is None or not other.startswith(f"{own}/"):
                wrong.append(f"{file} imports {other}")
    assert sorted(wrong) == []


def test_no_two_classes_share_a_name() -> None:
    paths = [*(ROOT / "pipeline").rglob("*.py"), *(ROOT / "stages").rglob("*.py")]
    classes = [name for path in paths for name in re.findall(r"^class (\w+)[(:]", path.read_text(), re.MULTILINE)]
    assert [name for name, count in Counter(classes).items() if count > 1] == []


def test_nothing_heavy_is_imported_before_there_is_work() -> None:
    """So `--help` answers at once, and bad parameters are told at once."""
    stages = ", ".join(f"stages.{path.stem}" for path in (ROOT / "stages").glob("[a-z]*.py"))
    heavy = {"torch", "pyro", "mlflow", "pandas", "sklearn", "matplotlib", "scipy"}
    code = f"import sys, pipeline.cli, pipeline.params, {stages}; print({heavy} & sys.modules.keys())"
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert told.stdout == "set()\n"
