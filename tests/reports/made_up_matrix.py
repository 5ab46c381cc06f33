"""Made-up results of matrix capsules and of the convolutional network beside them, of every study."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from made_up import Writer, pictures, spread
from small import small_run

from pipeline.classification.viewpoint_matching import NETWORKS, outcome
from pipeline.results.documents import documents
from pipeline.results.settings import ROWS
from pipeline.results.spread import nest

DATASET = "toys (stand-in)"
PAPERS = documents()["matrix_capsules"]
MODELS = {
    "matrix_capsules": PAPERS["iterations_3"]["model"] | PAPERS["iterations_3"]["published_code"]["model"],
    "cnn": PAPERS["cnn"]["model"],
}
CROPS = PAPERS["iterations_3"]["augmentation"]
QUICK = {"channels": 16, "primary_types": 4, "types": [4, 4]}
CONDITIONS: dict[str, tuple[dict[str, Any], float]] = {
    "iterations-1": ({"iterations": 1}, 0.30),
    "iterations-2": ({"iterations": 2}, 0.21),
    "iterations-3": ({}, 0.20),
    "iterations-5": ({"iterations": 5}, 0.24),
    "vector": ({"pose": "vector"}, 0.26),
    "no-coordinates": ({"coordinate_addition": False}, 0.23),
    "vector-no-coordinates": ({"pose": "vector", "coordinate_addition": False}, 0.27),
    "margin": ({"loss": "margin"}, 0.22),
    "cross-entropy": ({"loss": "cross-entropy"}, 0.31),
    "mixing": ({"activation": "mixing"}, 0.28),
    "colder": ({"inverse_temperature": 0.02}, 0.19),
}
"""Changes of every condition, and its made-up error."""
ERRORS = {name: error for name, (_, error) in CONDITIONS.items()}
EPSILONS = [0.0, 0.05, 0.1, 0.2, 0.4]
GENERAL = {
    "FGSM": {"capsules": [0.80, 0.66, 0.55, 0.43, 0.30], "cnn": [0.88, 0.50, 0.30, 0.12, 0.06]},
    "BIM": {"capsules": [0.80, 0.64, 0.52, 0.38, 0.26], "cnn": [0.88, 0.42, 0.18, 0.04, 0.02]},
}
TARGETED = {
    "FGSM": {"capsules": [0.05, 0.10, 0.15, 0.21, 0.28], "cnn": [0.03, 0.25, 0.36, 0.44, 0.40]},
    "BIM": {"capsules": [0.05, 0.12, 0.18, 0.27, 0.36], "cnn": [0.03, 0.35, 0.58, 0.79, 0.87]},
}
BLACK_BOX = {
    "FGSM": {"capsules": [0.80, 0.72, 0.63, 0.47, 0.33], "cnn": [0.82, 0.74, 0.62, 0.46, 0.31]},
    "BIM": {"capsules": [0.80, 0.70, 0.60, 0.44, 0.30], "cnn": [0.82, 0.72, 0.58, 0.43, 0.28]},
}
KINDS = {"general": GENERAL, "targeted": TARGETED, "black-box": BLACK_BOX}
VOTES = {"near": [0.22, 0.52, 0.61], "all": [0.2, 0.31, 0.34]}


def run(variant: str, dataset: str, replicas: int = 2, **model: Any) -> dict[str, Any]:
    """The entry of a run, its model the paper's but for `model`."""
    small = small_run(variant).model_dump(mode="json")
    return small | {
        "dataset": dataset,
        "replicas": replicas,
        "augmentation": CROPS,
        "training": small["training"] | {"epochs": 20, "batch_size": 32, "patience": 20},
        "model": small["model"] | MODELS[variant] | {"views": 2, "classes": 5} | model,
    }


def with_matrix(values: dict[str, Any], **datasets: str) -> dict[str, Any]:
    """Parameters with a run of each network on toys, every condition, both viewpoints and an attack.

    Args:
        datasets: source of further data sets by their name, for runs that a test adds.
    """
    digits = values["datasets"]["digits"]
    more = {
        name: digits | {"source": source, "canvas": 48, "train": 6400, "validation": 800, "test": 1600}
        for name, source in {"toys": "toys", **datasets}.items()
    }
    networks = {"capsules": "matrix-toys", "cnn": "cnn-toys"}
    return values | {
        "sources": sorted({*values["sources"], "toys", *datasets.values()}),
        "datasets": values["datasets"] | more,
        "runs": values["runs"]
        | {"matrix-toys": run("matrix_capsules", "toys", **QUICK), "cnn-toys": run("cnn", "toys", 3)},
        "ablation": {
            "toys": {
                "run": "matrix-toys",
                "epochs": 10,
                "replicas": 2,
                "conditions": {name: changes for name, (changes, _) in CONDITIONS.items()},
            }
        },
        "viewpoint": {
            axis: {"axis": axis, "dataset": "toys", **networks, "epochs": 30, "replicas": 2}
            for axis in ("azimuth", "elevation")
        },
        "routing": {"matrix-toys": {"run": "matrix-toys", "images": 100, "iterations": 4}},
        "attack": {"toys": {**networks, "images": 1500, "epsilons": EPSILONS, "steps": 10}},
        "evidence": values["evidence"]
        | {
            "matrix_capsules": {
                "table_1": {row: f"toys/{name}" for row, name in zip(ROWS, CONDITIONS, strict=False)},
                "cnn": "cnn-toys",
                "crops": "matrix-toys",
                "votes": "matrix-toys",
                "viewpoint": {axis: axis for axis in ("azimuth", "elevation")},
                "attack": "toys",
            }
        },
    }


def evaluated(writer: Writer, name: str, centre: float, crops: float, **more: Any) -> None:
    """Test errors of a run; with `votes`, of 400 images."""
    test = {"centre": spread(centre, 0.01), "crops": spread(crops, 0.01)}
    if "votes" in more:
        more["voted_images"] = 400
    writer.numbers("evaluate", name, {"study": "classification", "test": test, **more}, dataset=DATASET)


def votes(shares: dict[str, list[float]]) -> dict[str, Any]:
    return {name: {str(t + 1): spread(x, 0.01) for t, x in enumerate(values)} for name, values in shares.items()}


def vote_examples(writer: Writer, name: str) -> None:
    """Histograms of three images that gather at class 0, 1 and, wrongly, 2 over three iterations."""
    edges = np.linspace(0, 4, 41)
    middle, t = (edges[1:] + edges[:-1]) / 2, np.arange(3)[None, :, None, None]
    gathered = 8 * t * np.exp(-(((middle - 0.6) / 0.3) ** 2)) * np.eye(5)[:3, None, :, None]
    writer.examples(
        "evaluate", name,
        counts=6 / (1 + 2 * t) * np.exp(-(((middle - 2) / 0.8) ** 2)) + gathered, edges=edges,
        images=(255 * pictures(3, 2, 32, 32)).astype(np.uint8), labels=np.array([0, 1, 4]), scores=np.eye(5)[:3],
    )  # fmt: skip


def trained(writer: Writer, name: str, settled: float) -> None:
    epochs, replicas = np.tile(np.arange(1, 21), 2), np.repeat([0, 1], 20)
    accuracies = {
        "train_accuracy": settled + 0.08 - 0.7 * np.exp(-epochs / 5),
        "validation_accuracy": settled - 0.6 * np.exp(-epochs / 5) - 0.02 * replicas,
    }
    table = pd.DataFrame({"replica": replicas, "epoch": epochs, "train_gradient_norm": 2.0, **accuracies})
    writer.table("train", name, table)
    numbers = {
        "validation": {"loss": spread(0.1), "accuracy": spread(settled)}, "epochs": spread(20, 0),
        "images_per_second": spread(310.0, 4.0), "seconds": 512.0, "parameters": {"total": 310_064},
    }  # fmt: skip
    writer.numbers("train", name, numbers, dataset=DATASET)


def ablated(writer: Writer, name: str, errors: dict[str, float]) -> None:
    """What an ablation writes; `errors` by condition."""
    values = {
        condition: {"test": {"centre": spread(error, 0.012)}, "train": {"accuracy": spread(0.95, 0.01)}}
        for condition, error in errors.items()
    }
    writer.numbers("ablation", name, {"study": "ablation", "condition": values}, dataset=DATASET)


def viewed(writer: Writer, name: str, novel: dict[str, float], lead: float = 0.0) -> None:
    """What a study of viewpoints writes: errors on familiar viewpoints fall to 0.1 within 20 of 30 epochs, where those
    on novel ones are `novel`; with a lead the capsules are by so much better from the first epoch on. Two replicas,
    with an sd of 0.01.
    """
    tables = []
    for network, at in novel.items():
        for replica, off in enumerate((-0.01 / 2**0.5, 0.01 / 2**0.5)):
            falling = np.concatenate([np.linspace(0.6, 0.1 + off, 20), np.full(10, 0.1 + off)])
            familiar = np.full(30, 0.1 + off - lead) if lead and network == "capsules" else falling
            values = {"epoch": np.arange(1, 31), "familiar": familiar, "novel": at + off + familiar - familiar[-1]}
            tables.append(pd.DataFrame({"replica": replica, **values, "network": network}))
    curves = pd.concat(tables, ignore_index=True)
    writer.table("viewpoint", name, curves)
    both = (curves[curves["network"] == network].drop(columns="network") for network in NETWORKS)
    numbers = outcome(*both, {"familiar": 100, "novel": 200}).numbers
    writer.numbers("viewpoint", name, {"study": "viewpoint", **numbers}, dataset=DATASET)


def attacks(
    writer: Writer, name: str, kinds: dict[str, Any] = KINDS, zeros: tuple[float, float] = (0.01, 0.02)
) -> None:
    """What a study of attacks writes; two replicas each, a point above and below what `kinds` tell."""
    rows = [
        (network, replica, method, kind, epsilon, value + (0.01 if replica else -0.01), value + 0.1)
        for kind, methods in kinds.items()
        for method, networks in methods.items()
        for network, curve in networks.items()
        for epsilon, value in zip(EPSILONS, curve, strict=True)
        for replica in range(2)
    ]
    table = pd.DataFrame(rows, columns=["network", "replica", "method", "kind", "epsilon", "value", "own_loss"])
    writer.table("attack", name, table)
    named = table.assign(epsilon=table["epsilon"].map("{:g}".format))
    value = nest(named, ["method", "kind", "network", "epsilon"], "value")
    gradient = {
        network: {"zeros": spread(share, 0.001), "median": spread(size, size / 10)}
        for network, share, size in (("capsules", zeros[0], 2e-5), ("cnn", zeros[1], 1e-3))
    }
    numbers = {"value": value, "gradient": gradient, "cross_entropy_gradient": gradient}
    writer.numbers("attack", name, {"study": "attack", **numbers}, dataset=DATASET)
    attacked = pictures(8, 2, 32, 32).astype(np.float32)
    names = [f"{network}-{epsilon:g}" for network in ("capsules", "cnn") for epsilon in (0.0, 0.1, 0.4)]
    writer.examples("attack", name, **dict.fromkeys(names, attacked))


def routed(writer: Writer, name: str) -> None:
    """What a study of routing writes: of two images, the first goes to its class, the second to the wrong one."""
    T, n = 4, 5
    t = np.arange(1, T + 1)
    by_step = {
        "test_error": 0.5 / t, "moved": 1 / t**2, "activation_right": 1 - 0.5 / t, "activation_others": 0.5 / t,
        "spread_right": 2 / t, "spread_others": 3 / t,
    }  # fmt: skip
    numbers = {measure: {str(at): spread(x) for at, x in zip(t, xs, strict=True)} for measure, xs in by_step.items()}
    del numbers["moved"]["1"]
    layers = {
        str(layer): {
            "entropy": spread(0.9 - 0.2 * layer), "dead": spread(0.25 / layer), "range": spread(0.1 * layer),
            "types": spread(4 if layer < 3 else n, 0),
        }
        for layer in (1, 2, 3)
    }  # fmt: skip
    found = {"study": "routing", "used": 3, "images": 100, **numbers, "layers": layers}
    writer.numbers("routing", name, found, dataset=DATASET)
    writer.table("routing", name, pd.DataFrame({"replica": 0, "iteration": t, "test_error": by_step["test_error"]}))
    noise = np.random.default_rng(0)
    logits = noise.normal(size=(2, 1, n, 4, 3)) * np.arange(T)[:, None, None, None]
    logits[[0, 1], :, [1, 2]] += 2 * np.arange(T)[:, None, None]
    shares = np.exp(logits) / np.exp(logits).sum(2, keepdims=True)
    writer.examples(
        "routing", name,
        images=(255 * pictures(2, 32, 32)).astype(np.uint8), labels=np.array([1, 4]), used=np.array(3),
        parts=noise.random((2, 4, 3)).astype(np.float32), shares=shares.astype(np.float32),
        activations=shares.mean((-1, -2)).astype(np.float32),
        spreads=(3 / t[None, :, None] * np.ones((2, 1, n))).astype(np.float32),
    )  # fmt: skip


def everything(writer: Writer) -> None:
    """Every item of `with_matrix`."""
    evaluated(writer, "matrix-toys", 0.17, 0.15, votes=votes(VOTES))
    evaluated(writer, "cnn-toys", 0.12, 0.11)
    vote_examples(writer, "matrix-toys")
    trained(writer, "matrix-toys", 0.85)
    trained(writer, "cnn-toys", 0.9)
    ablated(writer, "toys", ERRORS)
    viewed(writer, "azimuth", {"capsules": 0.20, "cnn": 0.26})
    viewed(writer, "elevation", {"capsules": 0.19, "cnn": 0.24})
    attacks(writer, "toys")
    routed(writer, "matrix-toys")
