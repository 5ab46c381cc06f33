"""Stages on models run on a second device, too. The device is pretended: see `pretended_gpu`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from pretended_gpu import GPU, pretended_gpu
from records import load_record
from small import REGRESSION, small_params, small_run, write_root

from pipeline import compute
from pipeline.learning import runs
from pipeline.learning.gradient import group_replicas
from pipeline.probes.equivariance import derivatives
from stages import study, train

RUNS = ("capsules", "vae", "capsnet", "matrix", "cnn")


def _stacked(count: int, device: torch.device, stackable: bool = True) -> list[list[int]]:
    return group_replicas(count, torch.device("cuda"), stackable)


def _no_forward_mode(*_: object) -> None:
    """PyTorch 2.13 crashes where forward-mode derivatives meet a subclass of its tensors: the next way is taken."""
    raise NotImplementedError


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with models that were trained on the pretended GPU."""
    kinds = {"capsules": "generative", "matrix": "matrix_capsules"}
    short, fewer = {"epochs": 1}, ("steps", "restarts", "memory")
    models = {}
    for name in RUNS:
        run = small_run(kinds.get(name, name))
        models[name] = run.model_copy(update={"training": run.training.model_copy(update=short)})
    values = small_params(**models)
    engines = values["optimise"]["capsules"]["engines"]
    values["optimise"]["capsules"] |= {
        "replicas": 1,
        "angles": [90.0],
        "images": 2,
        "refit_images": 10,
        "engines": {
            name: {key: 1 if key in fewer else value for key, value in engine.items()}
            for name, engine in engines.items()
        },
    }
    folder = write_root(tmp_path_factory.mktemp("device") / "a clone", values)
    with pytest.MonkeyPatch.context() as patch:
        on_gpu(patch, folder)
        with pretended_gpu():
            for run in RUNS:
                train.main(run)
    return folder


def on_gpu(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Stages in `folder` choose the pretended GPU."""
    patch.chdir(folder)
    patch.setenv("CAPSULES_MLFLOW", "off")
    patch.setattr(compute, "choose_device", lambda wanted: GPU)
    patch.setattr(runs, "group_replicas", _stacked)
    patch.setattr(derivatives, "_forward_mode", _no_forward_mode)


# Without stages that only train and evaluate what others do, too: this takes time.
ITEMS = [
    *(("evaluate", run) for run in RUNS),
    ("optimise", "capsules"),
    ("turn", "capsules"),
    ("posterior", "capsules"),
    ("infer", "capsnet"),
    *(("routing", run) for run in ("capsnet", "matrix")),
    ("sweep", "capsules-45"),
    ("equivariance", "cnn"),
    ("data_efficiency", "cnn"),
    *(("regression", study) for study in REGRESSION),
    ("regression_sets", "short"),
    ("ablation", "matrix-squares"),
    ("recipe", "matrix-squares"),
    ("viewpoint", "azimuth"),
    ("attack", "cnn-squares"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "item"), ITEMS)
def test_a_study_runs_on_a_gpu(trained: Path, kind: str, item: str, monkeypatch: pytest.MonkeyPatch) -> None:
    on_gpu(monkeypatch, trained)
    with pretended_gpu():
        study.main(kind, item)
    assert load_record(trained / f"reports/small/results/{kind}/{item}.json")
