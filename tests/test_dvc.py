"""A short reproduction of the whole pipeline: in a temporary clone, with next to no data, under the real `dvc`.

One reproduction serves all tests here, and one experiment those that change something.
"""

from __future__ import annotations

import re
import shutil
import sys
from contextlib import chdir
from typing import Any

import numpy as np
import pytest
from clones import Clone, executed, restored, working_copy
from dvc.repo import Repo
from PIL import Image

from pipeline.dependencies import Graph, Item
from pipeline.state import changed_code
from scripts.small_copy import leave_out_evidence

pytestmark = pytest.mark.slow
RUNS = ("capsules-digits", "vae-digits", "capsnet-routed-digits", "scae-digits", "matrix-toys", "cnn-toys")
CAPSULES, VAE, _, SCAE, MATRIX, CNN = RUNS
OUTPUTS = ("data", "models", "results")
"""What lies in DVC's cache; everything else that stages write is kept in Git."""


def cut(values: dict[str, Any]) -> None:
    """Every stage stays, also one that the profile has no item of, with as few items as there can be."""
    values["publish"] = True
    for name, run in values["runs"].items():
        run["replicas"] = 2 if name == CNN else 1
    values["sweep"]["runs"], values["evidence"]["generative"]["sweep"] = [SCAE], {"scae": SCAE}
    kept = {"routing": (MATRIX,), "equivariance": (MATRIX, CNN), "data_efficiency": (MATRIX, CNN)}
    for stage, names in kept.items():
        values[stage] = {name: values[stage][name] for name in names}
    values["regression"] = {"grid-alone": values["regression_sets"]["digits"]["studies"]["grid-digits"]}
    leave_out_evidence(values)


CHANGED = {f"train@{VAE}", f"evaluate@{VAE}", "figures", "tables"}
"""What depends on a parameter of the VAE's run."""


def items(clone: Clone) -> list[Item]:
    """What there is to run."""
    return [item for items in Graph.load(clone.folder).items.values() for item in items.values()]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """The repository in a folder with a space in its name, reproduced once and committed."""
    clone = working_copy(tmp_path_factory.mktemp("dvc") / "a clone")
    clone.edit(cut)
    clone.run("git", "init", "-q")
    clone.run("git", "add", "-A")
    clone.run("git", "commit", "-qm", "code")
    output = clone.run("pipeline", "repro")
    assert sorted(executed(output)) == sorted(item.label for item in items(clone))
    clone.run("git", "add", "-A")
    clone.run("git", "commit", "-qm", "results")
    return clone


def test_every_stage_is_tracked_once_and_a_second_reproduction_runs_nothing(clone: Clone) -> None:
    reports = {path.name for path in (clone.folder / "reports/quick").iterdir()}
    folders = {"figures", "films", "plots", "previews", "results", "tables"}
    assert reports == folders | {"figures.json", "index.html", "scorecard.json"}
    kept = clone.run("git", "ls-files").splitlines()
    assert {"dvc.lock", *(f"reports/quick/results/train/{VAE}.{ending}" for ending in ("json", "csv"))} <= set(kept)
    assert not [name for name in kept if name.startswith(OUTPUTS)]
    assert clone.run("git", "status", "--porcelain") == ""
    output = clone.run("dvc", "repro")
    assert executed(output) == restored(output) == []
    assert "Data and pipelines are up to date." in output
    assert clone.json("status") == {}
    assert changed_code(clone.folder, clone.folder / "dvc.lock") == {}, "hashes as DVC's, folders' too"
    assert len(clone.tracked()) == len(items(clone)) > 30


def test_metrics_and_plots_are_shown_without_an_error(clone: Clone) -> None:
    shown = clone.json("metrics", "show")[""]["data"]
    folder = "reports/quick/results"
    results = {out for item in items(clone) for out in item.outs if out.startswith(folder) and out.endswith(".json")}
    assert shown.keys() == results
    assert all("error" not in each for each in shown.values())
    # DVC takes any key of that name, however deep, for a file that it could not read.
    assert "failed to load" not in clone.run("dvc", "metrics", "show")
    accuracy = shown[f"{folder}/evaluate/{VAE}.json"]["data"]["probe"]["mu_sigma"]["refit"]["rotated_0"]
    assert 0 <= accuracy <= 1
    output = clone.run("dvc", "plots", "show", "--out", "../shown")
    assert not re.search("error|warning|failed", output, re.IGNORECASE), output
    page = (clone.folder.parent / "shown" / "index.html").read_text()
    tables = (f"results/train/{VAE}.csv", f"results/optimise/{CAPSULES}.csv")
    for name in (*tables, f"figures/optimisation-{CAPSULES}.svg", "digits.png", "Learning__loss_of_validation"):
        assert name in page


def test_a_clone_with_what_is_published_has_nothing_to_run_draws_the_same_and_predicts(clone: Clone) -> None:
    """Git's files, and of the outputs weights and arrays alone."""
    printed = clone.run("pipeline", "publish")
    fresh = Clone(clone.folder.parent / "fresh")
    clone.run("git", "clone", "-q", ".", "../fresh")
    shutil.rmtree(fresh.folder / "published", ignore_errors=True)  # what the repository has of another profile
    shutil.move(clone.folder / "published", fresh.folder / "published")
    fresh.run("dvc", "pull", "-q", "--allow-missing", "-r", "published")
    assert "not published" not in printed
    assert "outputs published" in printed
    assert {path.name for path in (fresh.folder / "models").iterdir()} == set(RUNS)
    assert (fresh.folder / "results/quick/evaluate" / CAPSULES / "examples.npz").exists()
    assert not [path for path in (fresh.folder / "data").rglob("*") if path.is_file()]
    cards = {path.stem for path in (fresh.folder / "published/cards").iterdir()}
    assert cards == set(RUNS)
    text = (fresh.folder / f"published/cards/{CNN}.md").read_text()
    assert "seeds 0, 1" in text
    assert f"dvc pull --allow-missing -r published models/{CNN}" in text
    listed = (fresh.folder / "published/README.md").read_text()
    assert all(f"(cards/{run}.md)" in listed for run in RUNS)
    assert executed(fresh.run("dvc", "repro", "--allow-missing", "--dry")) == []
    reports = fresh.folder / "reports/quick"
    linked = re.findall(r'href="(\.\./[^"#]+)', (reports / "index.html").read_text())
    assert linked
    assert all((reports / name).is_file() for name in linked)
    assert fresh.run("git", "status", "--porcelain", "reports", "dvc.lock") == ""
    shutil.rmtree(reports / "figures")
    fresh.run(sys.executable, "-m", "stages.figures")
    assert fresh.run("git", "status", "--porcelain", "reports/quick/figures") == ""
    np.save(fresh.folder / "images.npy", np.zeros((3, 2, 48, 48), np.uint8))
    said = fresh.run("pipeline", "load", CNN, "images.npy")
    assert "2 seeds" in said
    assert len(re.findall(r"^image \d: class \d \(score ", said, re.MULTILINE)) == 3
    Image.new("L", (20, 20)).save(fresh.folder / "digit.png")
    assert "t0_A0" in fresh.run("pipeline", "load", CAPSULES, "digit.png")


LEARNING_RATE = f"runs.{VAE}.training.learning_rate"


def test_an_experiment_executes_what_depends_on_it_and_is_taken_back_without_a_run(clone: Clone) -> None:
    """One parameter of one run, changed by `dvc exp run`. Going back, only `figures` and `tables` run again: what they
    write is kept in Git, so that DVC has no copy to restore.
    """
    before = clone.tracked()
    output = clone.run("dvc", "exp", "run", "--name", "faster", "-S", f"{LEARNING_RATE}=0.003")
    assert (sorted(executed(output)), restored(output)) == (sorted(CHANGED), [])
    tracked = clone.tracked()
    assert len(tracked - before) == len(CHANGED)

    (differences,) = clone.json("params", "diff").values()
    assert differences.keys() == {LEARNING_RATE}
    assert differences[LEARNING_RATE]["old"] != differences[LEARNING_RATE]["new"] == 0.003
    metrics = clone.json("metrics", "diff")
    loss = metrics[f"reports/quick/results/train/{VAE}.json"]["validation.loss"]
    assert loss["diff"] == pytest.approx(loss["new"] - loss["old"])
    assert loss["diff"] != 0
    assert not [name for name in metrics if CNN in name]
    plots = clone.run("dvc", "plots", "diff", "HEAD", "--out", "../compared")
    assert not re.search("error|failed", plots, re.IGNORECASE), plots
    assert "faster" in clone.run("dvc", "exp", "show", "--csv")

    clone.run("git", "checkout", "params.yaml")
    output = clone.run("dvc", "repro")
    assert set(restored(output)) == CHANGED - {"figures", "tables"}
    assert executed(output) == ["figures", "tables"]
    assert sorted(name.split("-")[2] for name in clone.tracked() - tracked) == ["figures", "tables"]
    assert clone.json("status") == {}
    same = [f"reports/quick/results/{stage}/{VAE}.json" for stage in ("train", "evaluate")]
    assert clone.run("git", "status", "--porcelain", *same) == "", "to the byte what was committed"


CAPTIONED, CAPTION = "pipeline/systems/generative/report/inference.py", "the bound falls in"
EDITED = {
    "pipeline/systems/vae/model/vae.py": {f"train@{VAE}"},
    "pipeline/classification/adversarial.py": {"attack@toys"},
    "pipeline/systems/regression/experiments/grid.py": {"regression@grid-alone", "regression_sets@digits"},
    "pipeline/systems/regression/experiments/ridge.py": {"regression_sets@digits"},
    CAPTIONED: {"figures", "tables"},
    "pipeline/tracking/run.py": set[str](),
    "pipeline/systems/vae/settings.py": set[str](),
    "stages/workspace.py": set[str](),
}
"""Files, and the items that directly depend on them."""


@pytest.mark.filterwarnings("ignore:_NoneStep.value will soon:DeprecationWarning")  # DVC's use of pygtrie
@pytest.mark.parametrize("edited", [EDITED, {"pipeline/learning/train.py": {f"train@{run}" for run in RUNS}}])
def test_changed_code_makes_stale_what_is_made_by_it(clone: Clone, edited: dict[str, set[str]]) -> None:
    """`dvc status` tells what directly depends on a file. What works on a trained run depends on the run's folder, and
    runs again once that has changed. Settings are declared in code, but their values are parameters; how runs are
    recorded changes no result.
    """
    for name in edited:
        path = clone.folder / name
        content = path.read_text()
        path.write_text(f"{content}\n# changed\n" if name != CAPTIONED else content.replace(CAPTION, "it falls in"))
        assert path.read_text() != content
    with chdir(clone.folder), Repo() as repo:
        assert set(repo.status()) == set().union(*edited.values())
    clone.run("git", "checkout", *edited)
