"""Iterative inference instead of routing: is it sparse, and why? (document 001, section 3.1, Figure 1B-E)

The class capsules of a trained CapsNet are measured after the forward pass and after predictive coding under several
conditions. Sparsity is measured on the lengths of a layer's capsules.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot
from tqdm import tqdm

from pipeline.data.datasets import Dataset
from pipeline.probes.sparsity import effective_number, entropy_of_shares, hoyer
from pipeline.results.outcome import Outcome
from pipeline.results.spread import nest, stack_replicas
from pipeline.systems.capsnet.inference.predictive_coding import Inferred, Objective, forward_pass, infer
from pipeline.systems.capsnet.model.capsnet import CapsNet
from pipeline.systems.capsnet.studies.infer import InferParams

FORWARD, START = "forward", "start"
"""Names used like conditions: the forward pass of all test images, and of those used for inference."""
EXAMPLES = 6
BATCH = 500
_SILENT = 1e-6
"""Capsules of at most this length count as silent."""
_SATURATED = 0.9
"""Longer capsules count as saturated: a length L changes by 2 (1 - L) of the relative change of what is squashed to it,
so from here on by less than a fifth.
"""


@torch.no_grad()
def sparsity_of_inference(
    models: Sequence[CapsNet], dataset: Dataset, settings: InferParams, device: torch.device, title: str
) -> Outcome:
    """Sparsity after the forward pass on all test images, and after inference on the first ones, by replica.

    The networks' parameters are frozen: inference changes only activities.

    Returns:
        numbers by condition, layer and measure, and the number of images for inference. The table's columns: replica,
        condition, layer ("middle", "class"), images; hoyer with its standard error over images, entropy and
        effective_number, over images with an active capsule, and silent, the share of images without one; after the
        forward pass, saturated (share of capsules), length_sd (of the capsules of an image, mean over images) and
        hoyer_inputs (Hoyer's index of what is squashed to these capsules); for class capsules, right (share of images
        whose longest capsule is that of their class), length_right and length_others (mean lengths); after inference,
        energy (per image), falls (share of images whose energy never rose) and last_drop (relative fall of the energy
        over the last tenth of the steps). Arrays of the first replica: `images`, `labels`,
        `capsules_<condition> [k, n, D]` of a few images, `energies_<condition> [steps + 1, terms]`, means over images.

    Raises:
        UserError: inference diverged.
    """
    images, labels = dataset.part("test")
    pixels = torch.from_numpy(images).float() / 255
    count = min(settings.images, len(images))
    shown = min(EXAMPLES, count)
    some, classes = pixels[:count].to(device), torch.from_numpy(labels).to(device)
    arrays: dict[str, NDArray[np.generic]] = {"images": images[:shown, 0], "labels": labels[:shown]}
    tables = []
    for number, model in enumerate(models):
        model.requires_grad_(False)
        layers = model.layers()
        batches = [forward_pass(layers, batch.to(device))[2:] for batch in pixels.split(BATCH)]
        whole = [torch.cat(layer) for layer in zip(*batches, strict=True)]
        rows = _rows(FORWARD, whole, classes)
        rows += _rows(START, [each[:count] for each in whole], classes)
        capsules, energies = {START: whole[-1]}, {}
        for condition in settings.conditions:
            weight = [] if condition.penalty == "none" else [f"{condition.weight:g}"]
            name = "-".join([condition.output, condition.label, condition.penalty, *weight])
            target = one_hot(classes[:count], model.params.classes).float() if condition.label == "clamped" else None
            objective = Objective(condition.output, target, condition.penalty, condition.weight)
            steps = tqdm(range(settings.steps), desc=title, unit="step", leave=False)
            found = infer(layers, some, objective, steps=steps, rate=settings.rate)
            of_middle = [found.activities[2]] if model.middle else []
            rows += _rows(name, [*of_middle, found.capsules], classes, descent(found))
            capsules[name], energies[name] = found.capsules, found.energies.mean(-1)
        if number == 0:
            arrays |= {f"capsules_{name}": each[:shown].cpu().numpy() for name, each in capsules.items()}
            arrays |= {f"energies_{name}": each.cpu().numpy() for name, each in energies.items()}
        tables.append(pd.DataFrame(rows))
    table = stack_replicas(tables)
    long = table.melt(id_vars=["replica", "condition", "layer"], var_name="measure").dropna()
    numbers: dict[str, Any] = {"condition": nest(long, ["condition", "layer", "measure"], "value"), "images": count}
    headline = tuple(f"condition.{name}.class.hoyer" for name in numbers["condition"])
    return Outcome("inference", table, numbers, headline, arrays)


def _rows(
    name: str, capsules: Sequence[Tensor], classes: Tensor, descent: dict[str, float] | None = None
) -> list[dict[str, Any]]:
    """A row for each layer of capsules: the middle one, if there is one, and class capsules."""
    rows: list[dict[str, Any]] = []
    for layer, each in zip(("middle", "class")[-len(capsules) :], capsules, strict=True):
        lengths = each.norm(dim=-1).double().cpu().numpy()
        rows.append({"condition": name, "layer": layer, "images": len(each), **_indices(lengths)})
        if descent is None:
            rows[-1] |= _saturation(lengths)
    lengths = capsules[-1].norm(dim=-1)
    classes = classes[: len(lengths)]
    own = lengths.gather(1, classes.unsqueeze(-1)).squeeze(-1)
    right = (lengths.argmax(1) == classes) & (lengths.amax(1) > _SILENT)
    rows[-1] |= {
        "right": float(right.double().mean()),
        "length_right": float(own.mean()),
        "length_others": float(((lengths.sum(1) - own) / (lengths.shape[1] - 1)).mean()),
        **(descent or {}),
    }
    return rows


def _indices(lengths: NDArray[np.float64]) -> dict[str, float]:
    """How sparse the lengths `[B, n]` of capsules are."""
    active = lengths[lengths.max(1) > _SILENT]
    silent = {"silent": 1 - len(active) / len(lengths)}
    if not len(active):
        return silent
    sparse = hoyer(active)
    error = float(sparse.std(ddof=1)) / math.sqrt(len(active)) if len(active) > 1 else math.nan
    return {
        "hoyer": float(sparse.mean()),
        "hoyer_standard_error": error,
        "entropy": float(entropy_of_shares(active).mean()),
        "effective_number": float(effective_number(active).mean()),
        **silent,
    }


def _saturation(lengths: NDArray[np.float64]) -> dict[str, float]:
    """How near lengths `[B, n]` are to the limit of the squash, where even unequal inputs get equal lengths, and the
    sparsity of these inputs.
    """
    inputs = np.sqrt(lengths / np.maximum(1 - lengths, np.finfo(np.float32).eps))  # a length is n^2 / (1 + n^2)
    return {
        "saturated": float((lengths > _SATURATED).mean()),
        "length_sd": float(lengths.std(axis=1).mean()),
        "hoyer_inputs": float(hoyer(inputs).mean()),
    }


def descent(found: Inferred) -> dict[str, float]:
    """How the energy fell: where it ended, and the shares `falls` and `last_drop` of `sparsity_of_inference`."""
    whole = found.energies.double().sum(1)  # (steps + 1, B)
    # The energy may rise by this much through rounding in single precision.
    rounding = 1e-5 * whole[0].clamp_min(1e-3)
    falls = (whole.diff(dim=0) <= rounding).all(0)
    mean = whole.mean(1)
    late = mean[-1 - math.ceil((len(mean) - 1) / 10)]
    return {
        "energy": float(mean[-1]),
        "falls": float(falls.double().mean()),
        "last_drop": float((late - mean[-1]) / late) if late > 0 else 0.0,
    }
