"""The one list of what results depend on: against DVC's own expansion, and against what the code imports."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from imports import closure, imports

from pipeline.dependencies import Graph, GraphError, Item
from pipeline.params import parse_params
from pipeline.studies import file_of
from pipeline.systems import SYSTEMS

ROOT = Path(__file__).parents[1]
PROFILES = [ROOT / "params.yaml", *sorted(ROOT.glob("profiles/*/params.yaml"))]
STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]


def graph_of(path: Path) -> tuple[Graph, dict[str, Any]]:
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    return Graph(STAGES, values), parse_params(values).model_dump(mode="json")


def expanded_by_dvc(folder: Path) -> dict[str, Any]:
    """The stages for the params.yaml in a folder."""
    from dvc.parsing import DataResolver
    from dvc.repo import Repo

    with Repo.init(str(folder), no_scm=True) as repo:
        found: dict[str, Any] = DataResolver(repo, str(folder), {"stages": STAGES}).resolve()["stages"]
    return found


# ---- the list and DVC


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.parent.name)
def test_items_are_expanded_as_dvc_expands_them(path: Path, tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_bytes(path.read_bytes())
    theirs = expanded_by_dvc(tmp_path)
    graph, _ = graph_of(path)
    ours = {item.label: item for items in graph.items.values() for item in items.values()}
    assert ours.keys() == theirs.keys()
    for label, item in ours.items():
        entry = theirs[label]
        outs = [each for kind in ("outs", "metrics", "plots") for each in entry.get(kind, [])]
        assert list(item.deps) == entry["deps"], label
        assert list(item.params) == entry.get("params", []), label
        assert list(item.outs) == [each if isinstance(each, str) else next(iter(each)) for each in outs], label


def test_settings_follow_what_an_item_reads() -> None:
    graph, values = graph_of(ROOT / "params.yaml")
    run = next(iter(graph.items["train"]))
    settings = graph.settings("evaluate", run, values)
    dataset = values["runs"][run]["dataset"]
    assert settings == {
        "evaluate": values["evaluate"],
        "failures": values["failures"],
        "runs": {run: values["runs"][run]},
        "datasets": {dataset: values["datasets"][dataset]},
    }, "the run and its data set through the weights; the device is no setting"
    sweep = next(iter(graph.items["sweep"]))
    found = graph.settings("sweep", sweep, values)
    assert f"{found['item']['run']}-{found['item']['angle']}" == sweep
    assert found["sweep"].keys() == {"replicas", "training_share"}


def test_an_unknown_item_or_parameter_is_named() -> None:
    graph, _ = graph_of(ROOT / "params.yaml")
    with pytest.raises(GraphError, match="no stage train@nobody"):
        graph.item("train", "nobody")
    with pytest.raises(GraphError, match=r"uses \$\{runs\}, which is not in params.yaml"):
        _ = Graph({"train": STAGES["train"]}, {"profile": "p"}).items


# ---- the list and the code

NOT_FOLLOWED = {
    "stages/workspace.py": "checks, tracks and writes",
    "stages/tracked.py": "tracks",
    "pipeline/studies/__init__.py": "finds a study's module, which is known by the item",
    "pipeline/studies/context.py": "opens, loads and trains by what other modules do, and remembers it",
    "pipeline/params.py": "checks params.yaml",
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
PAGE = ("figures", "tables")
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
    model = f"{package}/model/{SYSTEMS[variant].model.split('.')[0]}.py"
    if stage == "evaluate":
        return [model, f"{package}/evaluation/__init__.py"]
    if stage == "equivariance":
        return [model, f"{package}/equivariance.py"]
    if stage == "routing":
        return [model, f"{package}/routing.py"]
    if stage == "sweep":
        return [model, f"{package}/sweep.py" if SYSTEMS[variant].has("sweep") else "pipeline/probes/sweep.py"]
    return [model]


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
    if item.stage in PAGE:
        from pipeline.systems import REPORTS

        reports = (file for name in REPORTS for file in (ROOT / "pipeline/systems" / name / "report").glob("*.py"))
        start += [file.relative_to(ROOT).as_posix() for file in reports]
    return closure(start, NOT_FOLLOWED)


def runs_of(item: Item) -> list[str]:
    """The trained runs that an item makes or reads."""
    return [path.removeprefix("models/") for path in (*item.deps, *item.outs) if path.startswith("models/")]


def covered(file: str, places: Iterator[str] | list[str]) -> bool:
    return any(file == place or file.startswith(f"{place}/") for place in places)


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.parent.name)
def test_every_item_depends_on_all_the_code_it_runs(path: Path) -> None:
    """Directly, or through the folder of a trained run, which changes with the code that trains."""
    graph, values = graph_of(path)
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


def test_a_training_changes_with_the_kernels_it_runs_and_with_what_they_include() -> None:
    graph, values = graph_of(ROOT / "params.yaml")
    found = {}
    for run, item in graph.items["train"].items():
        files = {file for file in imported(item, values) if file.endswith((".cpp", ".h"))}
        assert all(covered(file, list(item.deps)) for file in files), item.label
        found[values["runs"][run]["variant"]] = files
    layers = {f"pipeline/layers/{name}.cpp" for name in ("attention", "rendering")}
    assert found["generative"] == {"pipeline/kernels.h", *layers}
    routing = "pipeline/systems/matrix_capsules/model/em_routing.cpp"
    assert found["matrix_capsules"] == {"pipeline/kernels.h", routing}
    assert found["vae"] == set()


def test_no_stage_depends_on_code_it_does_not_run() -> None:
    """A file or folder named by a stage is run through by one of its items at least: where a stage cannot choose by
    system it names the files of all.
    """
    used: dict[tuple[str, str], bool] = {}
    for path in PROFILES:
        graph, values = graph_of(path)
        for items in graph.items.values():
            for item in items.values():
                files = imported(item, values)
                for place in item.deps:
                    if place.startswith(("pipeline/", "stages/")):
                        hit = any(covered(file, [place]) for file in files)
                        used[item.stage, place] = used.get((item.stage, place), False) or hit
    assert [each for each, hit in used.items() if not hit] == []


# ---- the house


def test_no_system_imports_another_and_shared_rooms_import_no_system() -> None:
    above = ("pipeline/page/", "pipeline/report/", "pipeline/studies/")
    allowed = (
        "params.py", "systems/__init__.py", "cli.py", "doctor.py", "models.py", "operations/publish.py",
        "operations/demo.py",
    )  # fmt: skip
    wrong = []
    for path in (ROOT / "pipeline").rglob("*.py"):
        file = path.relative_to(ROOT).as_posix()
        own = "/".join(file.split("/")[:3]) if file.startswith("pipeline/systems/") else None
        for other in imports(file):
            if not other.startswith("pipeline/systems/") or other == "pipeline/systems/system.py":
                continue
            if file.removeprefix("pipeline/") in allowed or file.startswith(above):
                continue
            if other == "pipeline/systems/__init__.py" or own is None or not other.startswith(f"{own}/"):
                wrong.append(f"{file} imports {other}")
    assert sorted(wrong) == []


def test_the_library_imports_no_stage() -> None:
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "pipeline").rglob("*.py")]
    assert not {
        file: found for file in files if (found := {name for name in imports(file) if name.startswith("stages/")})
    }


def test_no_two_classes_share_a_name() -> None:
    paths = [*(ROOT / "pipeline").rglob("*.py"), *(ROOT / "stages").rglob("*.py")]
    classes = [name for path in paths for name in re.findall(r"^class (\w+)", path.read_text(), re.MULTILINE)]
    assert [name for name, count in Counter(classes).items() if count > 1] == []


def test_nothing_heavy_is_imported_before_there_is_work() -> None:
    """So `--help` answers at once, and bad parameters are told at once."""
    stages = ", ".join(f"stages.{path.stem}" for path in (ROOT / "stages").glob("[a-z]*.py"))
    heavy = {"torch", "pyro", "mlflow", "pandas", "sklearn", "matplotlib", "scipy"}
    code = f"import sys, pipeline.cli, pipeline.params, {stages}; print({heavy} & sys.modules.keys())"
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert told.stdout == "set()\n"


def test_own_images_are_a_source_like_any_other(tmp_path: Path) -> None:
    """The folder is a dependency, inside the repository or elsewhere; what is made from it records its settings."""
    values = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    own = {"path": "/photos of pets/", "format": "folder", "test_part": False, "classes": ["cat", "dog"]}
    values["own_images"] = {"pets": {**own, "channels": 1, "side": 28, "fit": "pad"}}
    values["datasets"]["mine"] = {**values["datasets"]["digits"], "source": "pets"}
    values["runs"]["vae-mine"] = {**values["runs"]["vae-digits"], "dataset": "mine"}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(values))
    theirs = expanded_by_dvc(tmp_path)
    graph, checked = graph_of(tmp_path / "params.yaml")
    item = graph.item("own_images", "pets")
    assert list(item.deps) == theirs[item.label]["deps"]
    assert item.deps[-1] == "/photos of pets/"
    needed = {file for file in imported(item, checked) if is_dependency(file)}
    assert needed == {"stages/own_images.py", "pipeline/data/own_images.py"}
    settings = graph.settings("evaluate", "vae-mine", checked)
    assert settings["own_images"] == {"pets": checked["own_images"]["pets"]}
    assert settings["datasets"].keys() == {"mine"}
    assert "own_images" not in graph.settings("evaluate", "vae-digits", checked)


def test_angles_of_the_sweep_keep_the_form_in_which_they_are_written(tmp_path: Path) -> None:
    """45 and 45.0 are the same angle, and two names: DVC and this library must use the one that is written."""
    text = (ROOT / "params.yaml").read_text(encoding="utf-8")
    (line,) = (line for line in text.split("\nsweep:\n")[1].splitlines() if line.startswith("  angles: "))
    (tmp_path / "params.yaml").write_text(text.replace(line, "  angles: [45.0, 33.3333333, 60, 1.0e-7]"))
    theirs = expanded_by_dvc(tmp_path)
    graph, _ = graph_of(tmp_path / "params.yaml")
    items = graph.items["sweep"].values()
    assert {item.label for item in items} == {label for label in theirs if label.startswith("sweep@")}
    assert {item.label.rpartition("-digits-")[2] for item in items} == {"45.0", "33.3333333", "60", "1e-07"}
