"""Iterative inference in place of routing: is it sparse, and what makes it so? (document 001, section 3.1, Figure 1B-E)

A trained CapsNet's class capsules, as its forward pass leaves them and after predictive coding: label clamped or free,
without a penalty and with two. Sparsity is measured on the lengths of a layer's capsules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pandas as pd
import torch
from torch import Tensor

from pipeline.data.datasets import Dataset
from pipeline.inference.predictive_coding import Objective, forward_pass, infer
from pipeline.models.capsnet import CapsNet
from pipeline.outcome import Outcome
from pipeline.params import InferParams
from pipeline.studies.sparsity import effective_number, entropy_of_shares, hoyer
from pipeline.studies.summary import nest, stack_replicas

FORWARD = "forward"
"""In place of a penalty: the forward pass, before any inference."""
INDICES = {"hoyer": hoyer, "entropy": entropy_of_shares, "effective_number": effective_number}
EXAMPLES = 6

Bar = Callable[[range], Sequence[int] | range]


def condition(label: str, penalty: str) -> str:
    """The name of arrays that belong to one condition."""
    return f"{label}_{penalty}"


def sparsity_of_inference(
    models: Sequence[CapsNet], dataset: Dataset, settings: InferParams, device: torch.device, bar: Bar
) -> Outcome:
    """Sparsity of the forward pass on all test images and after inference on the first, by replica.

    Returns:
        numbers by condition (label, penalty, layer, measure), and how many images were inferred. The table's columns:
        replica, label ("none" for the forward pass, "clamped", "free"), penalty ("forward", "none", "L1", "L2"), layer
        ("middle", "class"), an index of sparsity each, right (share of images whose longest class capsule is that of
        their class), length_right and length_others (mean lengths of class capsules), energy (at the end, per image),
        falls (share of images whose energy never rose). Arrays of the first replica: `images`, `labels` and
        `capsules_<condition> [k, n, D]` of a few images, `energies_<condition> [steps + 1, terms]`, means over images.

    Raises:
        ValueError: inference diverged.
    """
    images, labels = dataset.part("test")
    pixels = torch.from_numpy(images).to(device).float() / 255
    classes = torch.from_numpy(labels).to(device)
    tables, arrays = [], {}
    for number, model in enumerate(models):
        rows = []
        model.requires_grad_(False)  # what is inferred are activities
        for label, penalty, activities, energies in _conditions(model, pixels, classes, settings, bar):
            rows += [
                {"label": label, "penalty": penalty, "layer": layer, **_indices(capsules)}
                | _lengths(activities[-1], classes[: len(capsules)])
                | _energies(energies)
                for layer, capsules in _capsule_layers(model, activities)
            ]
            if number == 0:
                name = condition(label, penalty)
                arrays[f"capsules_{name}"] = activities[-1][:EXAMPLES].cpu().numpy()
                if energies is not None:
                    arrays[f"energies_{name}"] = energies.mean(-1).cpu().numpy()
        tables.append(pd.DataFrame(rows))
    table = stack_replicas(tables)
    long = table.melt(id_vars=["replica", "label", "penalty", "layer"], var_name="measure")
    numbers = {
        "condition": nest(long, ["label", "penalty", "layer", "measure"], "value"),
        "images": min(settings.images, len(images)),
    }
    return Outcome(table, numbers, {"images": images[:EXAMPLES, 0], "labels": labels[:EXAMPLES], **arrays})


def _conditions(
    model: CapsNet, pixels: Tensor, classes: Tensor, settings: InferParams, bar: Bar
) -> Iterator[tuple[str, str, list[Tensor], Tensor | None]]:
    """Label, penalty, activities of all layers, and energies `[steps + 1, terms, B]`: the forward pass, then each."""
    layers = model.layers()
    with torch.no_grad():
        yield "none", FORWARD, forward_pass(layers, pixels), None
    pixels, classes = pixels[: settings.images], classes[: settings.images]
    target = (classes.unsqueeze(-1) == torch.arange(model.params.classes, device=classes.device)).to(pixels)
    for label in settings.labels:
        for penalty in settings.penalties:
            objective = Objective(target if label == "clamped" else None, penalty, settings.weight)
            found = infer(layers, pixels, objective, steps=settings.steps, rate=settings.rate, bar=bar)
            yield label, penalty, found.activities, found.energies


def _capsule_layers(model: CapsNet, activities: Sequence[Tensor]) -> list[tuple[str, Tensor]]:
    above = [("class", activities[-1])]
    return [("middle", activities[-2]), *above] if model.middle else above


def _indices(capsules: Tensor) -> dict[str, float]:
    lengths = capsules.norm(dim=-1).double().cpu().numpy()
    return {name: float(index(lengths).mean()) for name, index in INDICES.items()}


def _lengths(capsules: Tensor, classes: Tensor) -> dict[str, float]:
    lengths = capsules.norm(dim=-1)
    own = lengths.gather(1, classes.unsqueeze(-1)).squeeze(-1)
    others = (lengths.sum(1) - own) / (lengths.shape[1] - 1)
    return {
        "right": float((lengths.argmax(1) == classes).double().mean()),
        "length_right": float(own.mean()),
        "length_others": float(others.mean()),
    }


def _energies(energies: Tensor | None) -> dict[str, float]:
    if energies is None:
        return {"energy": 0.0, "falls": 1.0}
    whole = energies.sum(1)  # (steps + 1, B)
    # Of an energy's size in single precision: as much as rounding may lift it.
    rounding = 1e-5 * whole[0].clamp_min(1e-3)
    falls = (whole.diff(dim=0) <= rounding).all(0)
    return {"energy": float(whole[-1].mean()), "falls": float(falls.double().mean())}
