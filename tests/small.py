"""Models, parameters and data small enough to train in a test."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from pydantic import TypeAdapter

from pipeline.data.datasets import Dataset, save_dataset
from pipeline.learning.settings import AugmentationParams, CropParams, TrainingParams
from pipeline.probes.settings import EvaluateParams
from pipeline.systems import MODELS, Run
from pipeline.systems.generative.settings import Engine, FailureParams

ROOT = Path(__file__).parents[1]

SIZE = 12
"""Pixels a side of the small images."""
SCAE_SIZE = 23
"""The least that the stacked capsule autoencoder's four convolutions leave something of."""

SMALL = {
    "objects": 3, "parts": 4, "template_size": 5, "template_scale": 0.5, "template_opacity": 0.4,
    "temperature": 0.8,
    "final_temperature": 0.8, "temperature_epochs": 0, "slots": "own", "pose_posterior": "delta",
    "pose_posterior_sd_start": 0.05, "pixel_sd": 0.2,
    "pose_sd_floor": 0.1, "pose_sd_start": 0.4, "inactive_pose_sd": 0.3, "inactive_pose": "initial",
    "affinities": "learned", "dummy_affinity": 0.05, "dummy_pose_sd": 1.0, "object_presence": 0.2, "channels": 4,
    "part_features": 5,
    "hidden": 8, "heads": 2, "inducing": 3, "blocks": 1, "code": 6,
    "seeding_epoch": 1, "early_coupling": 0.25, "early_epochs": 2, "ramp_epochs": 2,
    "seeding": None,
}  # fmt: skip
"""A generative model."""

SMALL_VAE = {"latent": 3, "hidden": 8, "pixels": "normal", "pixel_sd": 0.2}

SMALL_SCAE = {
    "objects": 3, "parts": 4, "template_size": 5, "part_features": 2, "channels": 4, "hidden": 4, "blocks": 1,
    "attention": "presence", "code": 5, "object_features": 4, "presence_noise": 2.0, "deformation": 10.0,
    "posterior_within": 0.7, "posterior_between": 0.2, "prior_within": 2.0, "prior_between": 0.35, "prior_sum": 1.2,
    "classes": 3,
}  # fmt: skip

SMALL_CAPSNET = {
    "channels": 4, "kernel": 3, "strides": [1, 2], "types": 2, "primary_size": 3, "middle": 0, "middle_size": 4,
    "class_size": 5, "classes": 3, "iterations": 2, "counting": "updates", "reconstruction": "summed",
    "reconstruction_weight": 0.0005, "decoder": [6, 7], "present_margin": 0.9, "absent_margin": 0.1,
    "absent_weight": 0.5,
}  # fmt: skip

BAYES = {"alpha0": 1.0, "kappa0": 1.0, "nu0": 2.0, "psi0": 1.0, "precisions": "gamma", "shares_of": "layer"}
SMALL_MATRIX_CAPSULES = {
    "views": 1, "channels": 4, "kernel": 3, "stride": 2, "primary_types": 2, "types": [2], "capsule_kernel": 2,
    "capsule_strides": [1], "pose": "matrix", "pose_side": 2, "coordinate_addition": True, "coordinate_scale": 0.1,
    "coordinate_unit": "absolute", "classes": 3, "iterations": 2, "early_iterations": 1, "early_epochs": 0.0,
    "activation": "mdl", "bayes": BAYES,
    "batch_norm": False, "competition": "all", "first_shares": "all", "inverse_temperature": 3.0,
    "inverse_temperature_rate": 0.9,
    "class_inverse_temperature": 1.0, "damping": 0.1, "damped_first": False, "variance_floor": 0.1, "saving": 8.0,
    "beta_a_unit": 1.0,
    "convolutional": {"sd": 0.5, "beta_a": 0.0, "beta_u": 0.0}, "last": {"sd": 0.5, "beta_a": 0.0, "beta_u": 0.0},
    "primary_pose_sd": 0.5, "primary_activation_sd": 1.0, "primary_bias": 0.0, "loss": "spread", "first_margin": 0.2,
    "last_margin": 0.9, "margin_epochs": 0.2, "weight_decay": 2e-7, "mixup": 0.0,
}  # fmt: skip

SMALL_CNN = {"views": 1, "channels": [3, 4], "kernel": 3, "hidden": 6, "dropout": 0.5, "mixup": 0.0, "classes": 3}

STILL = AugmentationParams(rotation=0.0, shift=0.0, whole_pixels=False)


CROPPED = CropParams.model_validate({**dict.fromkeys(CropParams.model_fields, 0.0), "crop": 10})
"""For classifiers."""


def training(**changes: Any) -> TrainingParams:
    """Two epochs in batches of 10."""
    values = {
        "epochs": 2,
        "batch_size": 10,
        "optimiser": "adam",
        "learning_rate": 0.01,
        "final_learning_rate": 0.001,
        "decay": "cosine",
        "gradient_clip": 1000.0,
        "patience": 100,
        "averaging": 0.0,
    }
    return TrainingParams.model_validate({**values, **changes})


def small_run(variant: str = "generative", **changes: Any) -> Run:
    """A run on the small data set; `changes` replace its entries, and settings of the model."""
    models = {
        "generative": SMALL,
        "vae": SMALL_VAE,
        "scae": SMALL_SCAE,
        "capsnet": SMALL_CAPSNET,
        "matrix_capsules": SMALL_MATRIX_CAPSULES,
        "cnn": SMALL_CNN,
    }
    classifies_crops = variant in ("matrix_capsules", "cnn")
    values = {
        "variant": variant,
        "dataset": "squares",
        "replicas": 2,
        "seed": 3,
        "augmentation": (CROPPED if classifies_crops else STILL).model_dump(),
        **({"holdout": None, "watched": 0} if classifies_crops else {}),
        "training": training().model_dump(),
    }
    model = {**models[variant], **changes.pop("model", {})}
    return MODELS[variant].model_validate({**values, **changes, "model": model})


def run_on(variant: str, dataset: str, source: str = "digits") -> dict[str, Any]:
    """A small run of a data set with as many classes and channels as its source has."""
    channels, classes = {"digits": (1, 10), "toys": (2, 5)}[source]
    values = small_run(variant).model_dump() | {"dataset": dataset}
    fitting = {"classes": classes, "views": channels}
    values["model"] |= {name: value for name, value in fitting.items() if name in values["model"]}
    return values


def squares(train: int = 36, validation: int = 12, test: int = 12, size: int = SIZE) -> Dataset:
    """Images of one bright square each, its place the label (three of them), with noise."""
    random = np.random.default_rng(0)
    count = train + validation + test
    labels = np.arange(count) % 3
    images = random.integers(0, 60, (count, 1, size, size), np.uint8)
    side = size // 3
    for image, label in zip(images, labels, strict=True):
        row, column = [(1, 1), (1, size - side - 1), (size - side - 1, size // 2 - side // 2)][label]
        image[0, row : row + side, column : column + side] = random.integers(160, 256)
    parts = np.split(random.permutation(count), [train, train + validation])
    split = dict(zip(("train", "validation", "test"), parts, strict=True))
    # As though they had been taken all around.
    views = {"azimuth": np.arange(count) * 20 % 360, "elevation": 30 + np.arange(count) % 9 * 5}
    return Dataset("squares", "squares", images, labels.astype(np.int64), views, split, ("a", "b", "c"))


EVALUATE = EvaluateParams(
    angles=[0.0, 90.0], affine_versions=2, official_affnist=False, probe_images=30, probe_strengths=[0.1, 1.0], seed=0
)

FAILURES = FailureParams(turns=[90.0, 180.0], images=10, starts=4, steps=3, threshold=0.9, seed=0)


ENGINES = {
    "gauss-newton": {"method": "gauss-newton", "restarts": 1, "steps": 3, "tolerance": 0.1},
    "l-bfgs": {"method": "l-bfgs", "restarts": 1, "memory": 3, "steps": 3, "tolerance": 0.1},
    "adam": {"method": "adam", "bound": "sampled", "learning_rate": 0.03, "steps": 3, "tolerance": 0.1},
}
"""Of free-form inference."""


def engine(name: str, **changes: Any) -> Engine:
    """One of them, with some settings changed."""
    found: Engine = TypeAdapter(Engine).validate_python({**ENGINES[name], **changes})
    return found


INFER = {
    "images": 6, "steps": 5, "rate": 0.01,
    "conditions": [
        {"output": output, "label": label, "penalty": penalty, "weight": 0.0 if penalty == "none" else 1.0}
        for output in ("predicted", "free") for label in ("clamped", "free") for penalty in ("none", "L1", "L2")
    ],
}  # fmt: skip
"""A study of iterative inference."""

POSTERIOR = {
    "replicas": 1, "epochs": 1, "images": 6, "samples": 3, "sd_grid": [0.02, 0.1], "grid_samples": 2, "seed": 0,
}  # fmt: skip
"""A study of Gaussian poses, without its run."""


EQUIVARIANCE = {
    "images": 12, "fit_images": 16, "derivative_images": 8, "rotations": [30.0, 90.0], "shifts": [1.0], "scales": [1.2],
    "shears": [0.2], "penalties": [0.01, 1.0], "resamples": 10, "seed": 0,
}  # fmt: skip
"""Measures of equivariance, without their run."""

SCHEDULE = {"momentum": 0.9, "thresholds": [0.5, 0.0], "patience": [3, 2], "most_iterations": 20}
REGRESSION: dict[str, dict[str, Any]] = {
    "grid": {
        "study": "grid", "sizes": [1, 2], "decisions": ["multiclass"], "baselines": ["nearest-neighbours"],
        "schedule": SCHEDULE,
    },
    "convergence": {"study": "convergence", "size": 1, "iterations": 3, "momentum": 0.9, "threshold": 0.5},
    "starts": {
        "study": "starts", "size": 1, "iterations": 3, "momentum": 0.9, "threshold": 0.5, "sds": [0.1], "seeds": 2,
        "seed": 0,
    },
    "exactness": {"study": "exactness", "size": 1, "images": 2, "samples": 200, "seed": 0, "schedule": SCHEDULE},
    "online": {
        "study": "online", "size": 1, "batches": 2, "passes": 2, "momentum": 0.9, "pass_momentum": 0.3, "rate": 0.7,
        "seed": 0,
    },
    "ridge": {"study": "ridge", "size": 1, "decision": "one-vs-all", "penalties": [0.1], "schedule": SCHEDULE},
    "distorted": {
        "study": "distorted", "size": 1, "decision": "all-vs-all", "examples": 60, "strengths": [1.0], "seed": 0,
        "schedule": SCHEDULE,
    },
}  # fmt: skip
"""One study of each kind of capsule regression."""

CONDITIONS: dict[str, dict[str, Any]] = {"unchanged": {}, "vector": {"pose": "vector"}}
"""Of an ablation."""
PRESENCES: dict[str, dict[str, Any]] = {"unchanged": {}, "p": {"object_presence": 0.4}}
"""Of an ablation of presences."""
HYPERPARAMETERS: dict[str, list[float]] = {"pose_sd_floor": [0.05], "pixel_sd": [0.1, 0.4], "temperature": []}
"""Of the study of sensitivity."""
RECIPE = {
    "factor": "elevation", "held_out": [30, 35], "known_share": 0.2, "replicas": 1, "epochs": 2,
    "conditions": {"unchanged": {}, "shorter": {"training": {"epochs": 1, "learning_rate": 0.01}}},
}  # fmt: skip
"""A study of recipes, without its run."""

_SCENES = {"scenes": 12, "parts": 10, "objects": 4, "dimensions": 4, "seed": 0}
ATTENTION: dict[str, dict[str, Any]] = {
    "toy": {"study": "toy", "weights": [1.0, 2.0], "rate": 0.02, "steps": 2000},
    "iterated": {"study": "iterated", **_SCENES, "sigmas": [0.1, 0.3], "iterations": 20, "scales": [1.0, 8.0]},
    "density": {
        "study": "density", "dimensions": [2, 4], "kappas": [1.0, 10.0], "components": 3, "sigma": 0.3,
        "samples": 4000, "seed": 0,
    },
    "parsing": {
        "study": "parsing", **_SCENES, "sigmas": [0.1], "shown": [2, 3], "clutter": 0.1, "kappa": 10.0,
        "iterations": 3, "long_iterations": 10, "routing_starts": 3, "steps": 60, "rate": 0.1, "starts": 4, "kept": 2,
        "samples": 1, "judging": 4, "widest": 2.0,
    },
}  # fmt: skip
"""One study of each kind on top-down attention."""


OWN_IMAGES = {
    "path": "own.npz", "format": "npz", "test_part": False, "classes": ["a", "b", "c"], "channels": 1, "side": SIZE,
    "fit": "stretch",
}  # fmt: skip
"""Stands for the small data set, of which nothing is published."""


def on_squares(study: dict[str, Any]) -> dict[str, Any]:
    """A study of capsule regression on the small data set."""
    return {"dataset": "squares", "features": 8, **study}


def small_params(**runs: Run) -> dict[str, Any]:
    """The content of a params.yaml: a run of most variants on the small data set, or the runs given."""
    chosen = runs or {
        "capsules": small_run(),
        "vae": small_run("vae"),
        "capsnet": small_run("capsnet"),
        "matrix": small_run("matrix_capsules"),
        "cnn": small_run("cnn"),
    }
    generative, capsnets, matrices, cnns = (
        [name for name, run in chosen.items() if run.variant == variant]
        for variant in ("generative", "capsnet", "matrix_capsules", "cnn")
    )
    in_set = {f"{name}-in-set": on_squares(REGRESSION[name]) for name in ("grid", "starts")}
    attention_in_set = {f"{name}-in-set": ATTENTION[name] for name in ("iterated", "parsing")}
    both = [{"capsules": capsules, "cnn": cnn} for capsules in matrices for cnn in cnns]
    study = {"angles": [0.0, 90.0], "images": 4, "refit_images": 12, "kick_logit": 1.0, "seed": 0}
    study |= {"engines": ENGINES, "chosen": "gauss-newton"}
    return {
        "profile": "small",
        "publish": False,
        "device": "cpu",
        "sources": ["digits"],
        "own_images": {"squares": OWN_IMAGES},
        "datasets": {
            "squares": {"source": "squares", "canvas": 28, "train": 36, "validation": 12, "test": 12, "split_seed": 0}
        },
        "runs": {name: run.model_dump(mode="json") for name, run in chosen.items()},
        "evaluate": EVALUATE.model_dump(mode="json"),
        "optimise": {name: {"run": name, "replicas": chosen[name].replicas, **study} for name in generative},
        "posterior": {name: {"run": name, **POSTERIOR} for name in generative},
        "infer": {name: {"run": name, **INFER} for name in capsnets},
        "routing": {name: {"run": name, "images": 8, "iterations": 4} for name in [*capsnets, *matrices]},
        "sweep": {
            "angles": [0, 45],
            "runs": [name for name in chosen if name not in [*capsnets, *matrices, *cnns]],
            "replicas": 1,
            "training_share": 0.5,
        },
        "failures": FAILURES.model_dump(mode="json"),
        "sensitivity": {"run": generative[0], "epochs": 1, "replicas": 1, "hyperparameters": HYPERPARAMETERS},
        "presence_ablation": {
            name: {"run": name, "epochs": 1, "replicas": 2, "conditions": PRESENCES} for name in generative
        },
        "equivariance": {name: {"run": name, **EQUIVARIANCE} for name in chosen},
        "data_efficiency": {name: {"run": name, "shares": [0.5, 1.0], "epochs": 1, "replicas": 1} for name in chosen},
        "regression": {name: on_squares(study) for name, study in REGRESSION.items()},
        "regression_sets": {"short": {"dataset": "squares", "studies": in_set}},
        "attention": ATTENTION,
        "attention_sets": {"short": {"studies": attention_in_set}},
        "ablation": {
            f"{name}-squares": {"run": name, "epochs": 1, "replicas": 2, "conditions": CONDITIONS} for name in matrices
        },
        "recipe": {f"{name}-squares": {"run": name, **RECIPE} for name in matrices},
        "viewpoint": {
            axis: {"axis": axis, "dataset": "squares", **pair, "epochs": 2, "replicas": 1}
            for pair in both
            for axis in ("azimuth", "elevation")
        },
        "attack": {
            f"{pair['cnn']}-squares": {**pair, "images": 6, "epsilons": [0.0, 0.1], "steps": 2} for pair in both
        },
        "evidence": {"generative": {"table_1": {"capsules": generative[0]}}},
    }


def write_root(folder: Path, values: dict[str, Any] | None = None, size: int = SIZE) -> Path:
    """A repository's folder as stages need it: params.yaml, dvc.yaml, the small data set as preprocess leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "dvc.yaml", folder)
    (folder / "params.yaml").write_text(yaml.safe_dump(small_params() if values is None else values, sort_keys=False))
    save_dataset(folder / "data" / "processed" / "squares.npz", squares(size=size))
    return folder
