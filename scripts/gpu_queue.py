"""The profile paper-gpu on a borrowed GPU machine without network access: what to run, how to pack it and collect it.

    python scripts/gpu_queue.py                    what there is to run, most valuable first, and what is done
    python scripts/gpu_queue.py show NAME          the shell command for it
    python scripts/gpu_queue.py pack DIR           gather in DIR what must travel beside the working tree
    python scripts/gpu_queue.py collect DIR        take in what came back
    python scripts/gpu_queue.py page               write scripts/gpu_queue.md from this file

Made for machines that have Python 3.12 with torch and little else, that get a copy of the working tree (no Git, no DVC,
no MLflow, none of the ignored files) and run one command of a few minutes at a time, whose files come back from the
folder $OUT in pieces of limited size. scripts/gpu_queue.md tells the whole way.

What `show` prints uses scripts/gpu_there.py, which needs nothing but Python's own library.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from gpu_there import PIECE, PROFILE, RECORDS, SHIPPED, UNFINISHED, QueueError, code_hash, put, wheel_of

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from pipeline.dependencies import Graph  # noqa: E402

PACK = ".gpu"
"""Where `pack` is expected, relative to the repository, unless another folder is named."""

COMMAND_LENGTH = 2000
CALL_MINUTES = 9
TRAVELLING = 64 << 20

WANTED = ["pyro-ppl", "typer", "pydantic", "pyyaml", "safetensors", "pandas", "scikit-learn", "tqdm", "pytest"]
"""What the stages and the GPU tests import beside torch and what comes with it."""
FROM_TORCH = {
    "torch", "numpy", "filelock", "fsspec", "jinja2", "markupsafe", "mpmath", "networkx", "setuptools", "sympy",
}  # fmt: skip
PLATFORMS = [f"manylinux_2_{n}_x86_64" for n in (39, 35, 34, 31, 28, 27, 24, 17)] + ["manylinux2014_x86_64"]

MS_PER_STEP = {"generative": 20.0, "vae": 3.0, "scae": 20.0, "capsnet": 30.0, "matrix_capsules": 60.0, "cnn": 3.0}
"""Guesses: a step's few hundred small kernels take longer to start than to run, however many seeds are stacked; but for
CapsNet, whose convolutions take 460 GFLOP for three seeds, and matrix capsules, whose votes are 80 GB of traffic.
"""
MS_PER_EVALUATION = {"adam": 15.0, "l-bfgs": 25.0, "gauss-newton": 60.0}
"""Guesses, of a batch of about 512 images: the first two are kernels to start, the last has systems to solve."""
MS_PER_INFERRED_IMAGE = 0.03
"""A guess: a step takes 0.8 GFLOP for an image."""
REFIT_BATCH = 512
"""Images that are optimised at once for a probe."""
MINUTES_PER_PROBE = 0.05
STARTING = 1.5


@dataclass(frozen=True)
class Entry:
    """One thing to run.

    Attributes:
        commands: run one after another from the repository's folder.
        minutes: expected, a guess until it was run once.
        results: the records it makes, and seeds each of them should hold.
        needs: trainings that it depends on. Where it starts from their weights, these must be on the same machine or
            packed.
        measures: what the rows begin with that it adds to reports/bench.json.
    """

    name: str
    about: str
    commands: list[str]
    minutes: float
    results: dict[str, int]
    needs: tuple[str, ...] = ()
    measures: str = ""


def paper_params() -> dict[str, Any]:
    """The parameters of the profile paper-gpu: params.yaml while it is the current one, else those in profiles/."""
    for path in (ROOT / "params.yaml", ROOT / "profiles" / PROFILE / "params.yaml"):
        values: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
        if values["profile"] == PROFILE:
            return values
    raise QueueError(f"profiles/{PROFILE}/params.yaml does not say `profile: {PROFILE}`")


def queue(params: dict[str, Any]) -> list[Entry]:
    """Everything worth running, most valuable first.

    What the machine is like; the capsules' Table 1, Figure 4 and test-time optimisation; matrix capsules and the
    network they are compared with; CapsNet with and without routing, and iterative inference in it; Table 1 and Figure
    4 of what the capsules are compared with; full posteriors, sensitivity; and last what goes beyond the paper.
    """
    runs, sweep = params["runs"], params["sweep"]
    families: dict[str, list[str]] = {
        "capsules": [], "vae": [], "scae": [], "capsnet": [], "matrix_capsules": [], "cnn": [], "beyond": [],
    }  # fmt: skip
    for name, run in runs.items():
        own = run["variant"] == "generative" and run["model"]["slots"] == "own"
        family = "capsules" if own else "beyond" if run["variant"] == "generative" else run["variant"]
        families[family].append(name)

    def table_and_figure(family: str) -> list[Entry]:
        swept = [run for run in families[family] if run in sweep["runs"]]
        return [
            *(entry for run in families[family] for entry in table_1(params, run)),
            *(figure_4(params, run, angle) for run in swept for angle in sweep["angles"]),
        ]

    return [
        Entry(
            "gpu-tests",
            "the tests that need a GPU",
            [f"python3 -m pytest -m gpu -q -p no:cacheprovider -W default {' '.join(gpu_tests())}"],
            STARTING + 2,
            {},
        ),
        Entry(
            "benchmark",
            "the training step against TraceEnum_ELBO, seeds stacked, the renderer against the copy rate",
            ['python3 -m benchmarks generative --device cuda --seconds 150 --output "$OUT/bench.json"'],
            STARTING + 3,
            {},
            measures="generative",
        ),
        *table_and_figure("capsules"),
        Entry(
            "benchmark-free-form",
            "test-time optimisation: an evaluation's cost by engine, Gauss-Newton to where Adam ends",
            ['python3 -m benchmarks free-form --device cuda --seconds 300 --output "$OUT/bench.json"'],
            STARTING + 5,
            {},
            tuple(f"train-{run}" for run in families["capsules"][:1]),
            measures="free-form",
        ),
        *(optimisation(params, study) for study in params["optimise"]),
        Entry(
            "benchmark-capsnet",
            "CapsNet's training step and iterative inference against the convolutions alone",
            ['python3 -m benchmarks capsnet --device cuda --seconds 60 --output "$OUT/bench.json"'],
            STARTING + 1.5,
            {},
            measures="capsnet",
        ),
        Entry(
            "benchmark-matrix-capsules",
            "the training step of matrix capsules against the traffic of their votes",
            ['python3 -m benchmarks matrix-capsules --device cuda --seconds 60 --output "$OUT/bench.json"'],
            STARTING + 1.5,
            {},
            measures="matrix capsules",
        ),
        *table_and_figure("cnn"),
        *table_and_figure("matrix_capsules"),
        *(viewpoints(params, study) for study in params["viewpoint"]),
        *(attacks(params, study) for study in params["attack"]),
        *(ablation(params, study) for study in params["ablation"]),
        *(recipe(params, study) for study in params["recipe"]),
        *table_and_figure("capsnet"),
        *(iterative_inference(params, study) for study in params["infer"]),
        *table_and_figure("vae"),
        *table_and_figure("scae"),
        *(full_posterior(params, study) for study in params["posterior"]),
        *(varied_hyperparameter(params, name) for name in params["sensitivity"]["hyperparameters"]),
        *(presence_ablation(params, study) for study in params["presence_ablation"]),
        *table_and_figure("beyond"),
    ]


@lru_cache
def stages() -> dict[str, Any]:
    """The stages of dvc.yaml."""
    values: dict[str, Any] = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    return values


def item(params: dict[str, Any], stage: str, name: str, about: str, minutes: float, seeds: int) -> Entry:
    """One item of a stage: its command, records and what it needs are those of dvc.yaml.

    Args:
        minutes: beside those to start.
        seeds: that its record should hold.
    """
    found = Graph(stages(), params).item(stage, name)
    return Entry(
        f"{stage}-{name}",
        about,
        [re.sub("^python ", "python3 ", found.command)],
        STARTING + minutes,
        {out: seeds for out in found.outs if out.startswith(RECORDS) and out.endswith(".json")},
        tuple(f"train-{Path(dep).name}" for dep in found.deps if dep.startswith("models/")),
    )


def steps(params: dict[str, Any], run: str, epochs: float) -> float:
    """Minutes of training a run, all seeds at once."""
    settings = params["runs"][run]
    batches = params["datasets"][settings["dataset"]]["train"] / settings["training"]["batch_size"]
    return epochs * batches * MS_PER_STEP[settings["variant"]] / 60e3


def probes(params: dict[str, Any], run: str, tests: int, replicas: int) -> float:
    """Minutes of fitting probes on every kind of features of a run."""
    kinds = {"generative": 3, "scae": 2, "vae": 1, "capsnet": 1}[params["runs"][run]["variant"]]
    return tests * kinds * len(params["evaluate"]["probe_strengths"]) * replicas * MINUTES_PER_PROBE


def table_1(params: dict[str, Any], run: str) -> list[Entry]:
    """A run's training and its rows of Table 1."""
    settings = params["runs"][run]
    replicas, tests = settings["replicas"], len(params["evaluate"]["angles"]) + 1
    about = "its rows of Table 1: probes on clean, rotated and affine images"
    if settings["variant"] == "generative":
        about += "; Figures 5 and 6"
    minutes = steps(params, run, 1) if classifies(params, run) else probes(params, run, tests, replicas)
    if classifies(params, run):
        about = "its test errors, from the middle of images and from 13 crops"
    if settings["variant"] == "capsnet":
        about = "its test accuracy, and probes on clean, rotated and affine images"
    seeds = f"train {replicas} seeds, stacked" if replicas > 1 else "train one seed"
    return [
        item(params, "train", run, seeds, steps(params, run, settings["training"]["epochs"]), replicas),
        item(params, "evaluate", run, about, minutes, replicas),
    ]


def classifies(params: dict[str, Any], run: str) -> bool:
    """Whether a run is of document 004, whose evaluation takes no probes."""
    return params["runs"][run]["variant"] in ("matrix_capsules", "cnn")


def ablation(params: dict[str, Any], study: str) -> Entry:
    """Conditions of document 004, Table 1, one after another."""
    settings = params["ablation"][study]
    conditions = len(settings["conditions"])
    about = f"document 004, Table 1: {settings['run']} with something changed, {conditions} conditions"
    minutes = conditions * settings["replicas"] * steps(params, settings["run"], settings["epochs"])
    return item(params, "ablation", study, about, minutes, settings["replicas"])


def recipe(params: dict[str, Any], study: str) -> Entry:
    """Single changes of a training, each judged by objects held out."""
    settings = params["recipe"][study]
    conditions, folds = len(settings["conditions"]), len(settings["held_out"])
    about = f"{settings['run']} trained with something changed, {conditions} conditions: errors on objects held out"
    minutes = conditions * folds * steps(params, settings["run"], settings["epochs"])
    return item(params, "recipe", study, about, minutes, 1)


def viewpoints(params: dict[str, Any], study: str) -> Entry:
    """Both networks trained on a third of the images."""
    settings = params["viewpoint"][study]
    each = sum(steps(params, settings[network], settings["epochs"]) for network in ("capsules", "cnn"))
    about = "document 004, Table 2: novel viewpoints, matched on familiar ones"
    return item(params, "viewpoint", study, about, settings["replicas"] * each / 3, settings["replicas"])


def attacks(params: dict[str, Any], study: str) -> Entry:
    """White-box and black-box attacks on both networks."""
    settings = params["attack"][study]
    gradients = 5 * len(settings["epsilons"]) * (1 + settings["steps"]) * settings["images"]
    batches = gradients / params["runs"][settings["capsules"]]["training"]["batch_size"]
    about = f"document 004, Figure 3: {settings['images']} images attacked"
    replicas = params["runs"][settings["capsules"]]["replicas"]
    return item(params, "attack", study, about, batches * MS_PER_STEP["matrix_capsules"] / 60e3, replicas)


def figure_4(params: dict[str, Any], run: str, angle: float) -> Entry:
    """One range of rotation of the sweep."""
    sweep = params["sweep"]
    training = steps(params, run, params["runs"][run]["training"]["epochs"] * sweep["training_share"])
    about = f"Figure 4: trained and tested on rotations within {angle} degrees"
    minutes = training + probes(params, run, 1, sweep["replicas"])
    return item(params, "sweep", f"{run}-{angle}", about, minutes, sweep["replicas"])


def optimisation(params: dict[str, Any], study: str) -> Entry:
    """Test-time optimisation with every engine, and for a probe with the first."""
    settings = params["optimise"][study]
    replicas = params["runs"][settings["run"]]["replicas"]
    costs = [
        engine["steps"] * (1 + engine.get("restarts", 0)) * MS_PER_EVALUATION[engine["method"]] / 60e3
        for engine in settings["engines"].values()
    ]
    each = sum(costs) + costs[0] * math.ceil(settings["refit_images"] / REFIT_BATCH)
    minutes = replicas * len(settings["angles"]) * each + probes(params, settings["run"], 1, replicas)
    about = f"test-time optimisation of {settings['images']} images per range of rotation, {len(costs)} engines"
    return item(params, "optimise", study, about, minutes, replicas)


def iterative_inference(params: dict[str, Any], study: str) -> Entry:
    """Iterative inference in a CapsNet, under every condition."""
    settings = params["infer"][study]
    replicas = params["runs"][settings["run"]]["replicas"]
    conditions = len(settings["conditions"])
    evaluations = replicas * conditions * settings["steps"]
    about = f"section 3.1: {settings['images']} images as one batch under {conditions} conditions"
    minutes = evaluations * settings["images"] * MS_PER_INFERRED_IMAGE / 60e3
    return item(params, "infer", study, about, minutes, replicas)


def full_posterior(params: dict[str, Any], study: str) -> Entry:
    """A full posterior over poses."""
    settings = params["posterior"][study]
    run, replicas = settings["run"], settings["replicas"]
    training = steps(params, run, params["runs"][run]["training"]["epochs"] + 2 * settings["epochs"])
    about = "section 2.3: Gaussian poses, from the delta solution and from scratch"
    return item(params, "posterior", study, about, training + probes(params, run, 3, replicas), replicas)


def varied_hyperparameter(params: dict[str, Any], name: str) -> Entry:
    """The capsules trained at each value of one hyperparameter, and at its own."""
    study = params["sensitivity"]
    values = study["hyperparameters"][name]
    each = steps(params, study["run"], study["epochs"]) + probes(params, study["run"], 1, study["replicas"])
    about = f"appendix B: trained at {len(values)} values of it and the run's own"
    return item(params, "sensitivity", name, about, (len(values) + 1) * each, study["replicas"])


def presence_ablation(params: dict[str, Any], study: str) -> Entry:
    """The capsules trained in each condition of an ablation."""
    settings = params["presence_ablation"][study]
    run, conditions = settings["run"], len(settings["conditions"])
    each = steps(params, run, settings["epochs"]) + probes(params, run, 1, settings["replicas"])
    about = f"{run} with something changed, {conditions} conditions: whether presences are silent"
    return item(params, "presence_ablation", study, about, conditions * each, settings["replicas"])


def gpu_tests() -> list[str]:
    """Test files with tests that need a GPU."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(file.relative_to(ROOT)) for file in files if "mark.gpu" in file.read_text(encoding="utf-8")]


def state(entry: Entry, root: Path = ROOT) -> str:
    """ "done", or what is missing, by the records of this profile."""
    if entry.measures:
        path = root / "reports" / "bench.json"
        rows = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
        there = [row for row in rows if row["name"].startswith(entry.measures)]
        return "done" if any(not row["device"].startswith("CPU") for row in there) else "missing"
    if not entry.results:
        return "at will"
    for name, seeds in entry.results.items():
        path = root / name
        if not path.exists():
            return "missing"
        (result,) = json.loads(path.read_text(encoding="utf-8"))["record"]
        found = max(len(record["seeds"]) for record in result["provenance"])
        if found < seeds:
            return f"{found} of {seeds} seeds"
    return "done"


def command(entry: Entry, pack: str = PACK) -> str:
    """The shell command to run over there, in the folder of the working tree's copy."""
    words = " ".join(shlex.quote(each) for each in entry.commands)
    text = f"""\
export OUT="${{OUT:-$PWD/out}}" PYTHONUNBUFFERED=1 CAPSULES_MLFLOW=off
PYTHONPATH="$(python3 scripts/gpu_there.py unpack {shlex.quote(pack)})" || exit; export PYTHONPATH
python3 scripts/gpu_there.py wait {CALL_MINUTES} {words} &&
python3 scripts/gpu_there.py ship {shlex.quote(pack)} "$OUT"
"""
    if len(text) > COMMAND_LENGTH:
        raise QueueError(f"the command of {entry.name} is longer than {COMMAND_LENGTH} characters")
    return text


# ---- here, before: what must travel


def pack(folder: Path, data: Sequence[str], without: Sequence[str], weights: Sequence[str]) -> None:
    """Gather wheels, data sets and weights in `folder`, which Git ignores, and say how large it all is."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("*\n", encoding="utf-8")
    for part in ("data", "models"):
        shutil.rmtree(folder / part, ignore_errors=True)
    for name in data or paper_params()["datasets"]:
        path = ROOT / "data" / "processed" / f"{name}.npz"
        if not path.exists():
            raise QueueError(
                f"{path.relative_to(ROOT)} is missing: `python -m pipeline profile switch {PROFILE}`, then "
                f"`dvc repro preprocess@{name}`"
            )
        put(path, folder / "data" / path.name)
    for run in weights:
        source = ROOT / "models" / run
        if not (source / "model.json").exists():
            raise QueueError(f"models/{run} has no weights: train or collect them first")
        for path in source.iterdir():
            put(path, folder / "models" / run / path.name)
    _download(folder / "wheels", pins(without))
    commit, dirty = _git_state()
    about = {"commit": commit, "dirty": dirty, "code": code_hash(ROOT)}
    (folder / "pack.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")

    sizes = {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    for path, size in sorted(sizes.items(), key=lambda pair: -pair[1])[:6]:
        print(f"{size / 2**20:6.1f} MiB  {path.relative_to(folder)}")
    print(f"{sum(sizes.values()) / 2**20:6.1f} MiB  in all, {len(sizes)} files in {folder}")
    if dirty:
        print("note: the working tree has changes that no commit holds; results will say so")
    if sum(sizes.values()) > TRAVELLING:
        print(
            f"warning: more than {TRAVELLING >> 20} MiB. Leave out packages that the machine has (`--without scipy`, "
            "which comes with JAX and scikit-learn), or data that a run does not need (`--data mnist`)."
        )


def pins(without: Sequence[str]) -> list[str]:
    """`name==version` of every package to carry, as in requirements.lock."""
    from lock import needed

    locked = dict(
        line.split("==")
        for line in (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
        if "==" in line
    )
    names = sorted(set(needed(WANTED)) - FROM_TORCH - set(without))
    return [f"{name}=={locked[name]}" for name in names]


def _download(folder: Path, wanted: list[str]) -> None:
    """Wheels for Python 3.12 on Linux. Those of another version that an earlier packing left are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    for wheel in folder.glob("*.whl"):
        if "==".join(wheel_of(wheel)) not in wanted:
            wheel.unlink()
    there = {"==".join(wheel_of(wheel)) for wheel in folder.glob("*.whl")}
    missing = [each for each in wanted if each not in there]
    if not missing:
        return
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    target = ["--no-deps", "--only-binary=:all:", "--python-version", "3.12", "--implementation", "cp", *platforms]
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", *target, "-d", str(folder), *missing], check=True)


def _git_state() -> tuple[str, bool]:
    from stages.workspace import git_state

    return git_state(ROOT)


# ---- here, afterwards


def _unpack(archive: Path, folder: Path) -> None:
    """The plain files of a tar archive, none outside the folder; Python 3.11.3 and older have no filter for that."""
    with tarfile.open(archive) as opened:
        for member in opened:
            content = opened.extractfile(member) if member.isfile() else None
            if content is None:
                continue
            path = folder / member.name
            if not path.resolve().is_relative_to(folder.resolve()):
                raise QueueError(f"{member.name} in {archive.name} would lie outside the results")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.read())


def collect(folder: Path, root: Path = ROOT) -> list[Path]:
    """Take in what `ship` and the benchmark left in `folder`: numbers, weights, arrays, tracked runs, rows of speed.

    The copy over there had no Git, so the commit that was packed is put into every record that says "unknown".
    """
    if not (folder / "pack.json").exists():
        raise QueueError(f"{folder} has no pack.json: it is not what `ship` made")
    about = json.loads((folder / "pack.json").read_text(encoding="utf-8"))
    taken: list[Path] = []
    pieces = sorted(folder.glob("results.tar.gz.*"))
    with tempfile.TemporaryDirectory() as temporary:
        if pieces:
            whole, inside = Path(temporary, "results.tar.gz"), Path(temporary, "inside")
            with whole.open("wb") as file:
                for piece in pieces:
                    file.write(piece.read_bytes())
            _unpack(whole, inside)
            for path in sorted(each for each in inside.rglob("*") if each.is_file()):
                name = path.relative_to(inside)
                if not any(name.is_relative_to(part) for part in SHIPPED):
                    raise QueueError(f"{name} does not belong among results")
                if path.suffix in (".json", ".jsonl"):
                    _name_commit(path, about["commit"], about["dirty"])
                target = root / name
                if target.is_symlink() or target.exists():
                    target.unlink()  # a link into DVC's cache must not be written through
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, target)
                taken.append(name)
                if name.is_relative_to(RECORDS) and path.suffix == ".json":  # DVC wants the folder, empty or not
                    stage = name.parent.name
                    (root / "results" / PROFILE / stage / path.stem).mkdir(parents=True, exist_ok=True)
    bench = folder / "bench.json"
    if bench.exists():
        rows = json.loads(bench.read_text(encoding="utf-8"))
        for row in rows:
            if row["commit"].startswith("unknown"):
                row["commit"] = about["commit"] + (" with changes" if about["dirty"] else "")
        path = root / "reports" / "bench.json"
        kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
        fresh = {(row["name"], row["device"]) for row in rows}
        kept = [row for row in kept if (row["name"], row["device"]) not in fresh]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(kept + rows, indent=2) + "\n", encoding="utf-8")
        taken.append(path.relative_to(root))
    return taken


def _name_commit(path: Path, commit: str, dirty: bool) -> None:
    """Write the commit into the provenance of a record, or into the first event of a tracked run."""
    if path.suffix == ".json":
        content = json.loads(path.read_text(encoding="utf-8"))
        records = [each for result in content.get("record", []) for each in result["provenance"]]
        unnamed = [each for each in records if each["commit"] == "unknown"]
        for each in unnamed:
            each |= {"commit": commit, "dirty": dirty}
        if unnamed:
            path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        return
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    event = json.loads(lines[0])
    tags = event.get("tags", {})
    if tags.get("commit") == "unknown":
        tags |= {"commit": commit, "mlflow.source.git.commit": commit, "dirty": str(dirty)}
        lines[0] = json.dumps(event) + "\n"
        path.write_text("".join(lines), encoding="utf-8")


def afterwards(taken: Sequence[Path]) -> str:
    """What makes the rest of the pipeline know of collected results."""
    found = {
        f"{name.parts[-2]}@{name.stem}" for name in taken if name.is_relative_to(RECORDS) and name.suffix == ".json"
    }
    items = " ".join(sorted(found, key=lambda label: (not label.startswith("train"), label)))
    return f"""\
to have MLflow, DVC and the page know of them:
    python -m pipeline sync-mlflow
    python -m pipeline profile switch {PROFILE}
    dvc commit --force {items}
    dvc repro figures tables --single-item"""


PAGE = """\
# What a borrowed GPU machine should run

Written by `python scripts/gpu_queue.py page`. For a GPU machine without network access that has Python 3.12 and torch,
but neither DVC, MLflow nor Pyro; it gets a copy of the working tree, runs one command of at most ten minutes at a time
and gives back a few files. The way there and back was rehearsed, from packing to collecting, with shortened parameters
in such a Python on a CPU; the minutes are guesses until they ran on a GPU.

## Here, before

    python -m pipeline profile switch paper-gpu
    dvc repro preprocess
    python scripts/gpu_queue.py pack {pack}

Git ignores the packed folder: name it among what travels. It holds wheels, in the versions of requirements.lock, of
what such a machine may lack, and the data sets. Where that is too much, `--without scipy` leaves out a package that the
machine has, `--data mnist` all other data sets. Results name the commit that was packed: commit first, and pack again
after any change of the code.

The number of seeds is `runs.<run>.replicas` in params.yaml.

## There

What `python scripts/gpu_queue.py show NAME` prints, in the folder of the copy; most valuable first:

| name | minutes | what | stage |
| --- | ---: | --- | --- |
{rows}

For `{example}`:

```
{command}```

`unpack` installs what is missing beside the machine's own packages and lays out a tree to work in, with the parameters
of paper-gpu. `wait` runs the stages in sessions of their own and waits {minutes} minutes at most. If it ends
with code {unfinished}, they are still at work: give the same command again before the machine goes back. `ship` puts
records, weights, arrays and tracked runs into `$OUT`, as a tar file cut into pieces of {piece} MiB.

## Here, afterwards

    python scripts/gpu_queue.py collect DIR

DIR is the folder that came back. It then prints the commands by which MLflow, DVC and the page learn of the results. An
entry that starts from trained weights finds them where it runs on the same machine as the training; for another one,
`python scripts/gpu_queue.py pack {pack} --weights capsules-mnist` packs those that were collected.
"""


def page(entries: Sequence[Entry]) -> str:
    """The text of scripts/gpu_queue.md, the sweep in one row for each run."""
    shown = {re.sub(r"^(sweep-.*-)[0-9.]+$", r"\1ANGLE", entry.name): entry for entry in entries}
    rows = []
    for name, entry in shown.items():
        row = f"| {name} | {entry.minutes:.0f} | {entry.about} | `{'; '.join(entry.commands)}` |"
        if name != entry.name:
            angle = entry.name.rpartition("-")[2]
            row = row.replace(f" {angle} degrees", " ANGLE degrees").replace(f" {angle}`", " ANGLE`")
        rows.append(row)
    example = next(entry for entry in entries if entry.name.startswith("train-"))
    return PAGE.format(
        pack=PACK,
        rows="\n".join(rows),
        example=example.name,
        command=command(example),
        minutes=CALL_MINUTES,
        unfinished=UNFINISHED,
        piece=PIECE >> 20,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command")
    shown = commands.add_parser("show", help="print the shell command of an entry")
    shown.add_argument("name")
    shown.add_argument("--pack", default=PACK, help="the packed folder, relative to the working tree")
    packed = commands.add_parser("pack", help="gather what must travel beside the working tree")
    packed.add_argument("folder", type=Path)
    packed.add_argument("--data", nargs="*", default=[], help="data sets; all of the profile by default")
    packed.add_argument("--without", nargs="*", default=[], help="packages that the machine has already")
    packed.add_argument("--weights", nargs="*", default=[], help="runs whose weights travel too")
    collected = commands.add_parser("collect", help="take in what came back")
    collected.add_argument("folder", type=Path)
    commands.add_parser("page", help="write scripts/gpu_queue.md")
    told = parser.parse_args(arguments)
    match told.command:
        case "show":
            entries = {entry.name: entry for entry in queue(paper_params())}
            if told.name not in entries:
                raise QueueError(f"no entry {told.name}; there are: {', '.join(entries)}")
            print(command(entries[told.name], told.pack), end="")
        case "pack":
            pack(told.folder, told.data, told.without, told.weights)
        case "collect":
            taken = collect(told.folder)
            print("\n".join(str(name) for name in taken))
            if any(name.is_relative_to(RECORDS) for name in taken):
                print(afterwards(taken))
        case "page":
            (ROOT / "scripts" / "gpu_queue.md").write_text(page(queue(paper_params())), encoding="utf-8")
        case _:
            print(overview(queue(paper_params())))
    return 0


def overview(entries: Sequence[Entry]) -> str:
    """The queue as a table."""
    width = max(len(entry.name) for entry in entries)
    lines = [f"{'name':<{width}}  minutes  {'state':<12}  what"]
    for entry in entries:
        needs = f" (after {', '.join(entry.needs)})" if entry.needs else ""
        lines.append(f"{entry.name:<{width}}  {entry.minutes:7.0f}  {state(entry):<12}  {entry.about}{needs}")
    missing = sum(entry.minutes for entry in entries if state(entry) not in ("done", "at will"))
    return "\n".join([*lines, f"{missing:.0f} minutes missing, by a guess"])


if __name__ == "__main__":
    sys.exit(main())
