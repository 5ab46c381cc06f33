"""Whether predictive coding, used instead of routing, makes the capsules of a trained CapsNet sparse.

Document 001 studies this in sections 3 and 3.1, Figure 1B-E and appendix C. Predictive coding infers the activities x_l
of all layers l by minimising an energy:

    E = 1/2 sum_l |x_l - f_l(x_{l-1})|^2  +  1/2 sum_j (t_j - |v_j|)^2  +  weight * penalty(v)

Here x_0 is the image, f_l is a layer of the network, and v_j are the class capsules. If the label is clamped, t_j is 1
for the image's class and 0 for the others. If the label is free, the second sum is left out. The penalty is the sum of
the lengths |v_j| of whole capsules (L1, as in the document), half the sum of their squares (L2), or 0. Without the
penalty, E is the variational free energy of Gaussians of variance 1, up to a constant.

The network is trained with a ReLU in the first layer. The document's code leaves the ReLU out of inference
(`rectified: false`). That code minimises 2 E. Its step size 0.01 corresponds to 0.02 here, and its L1 weight 1 to 0.5.

The output v is `predicted` or `free`. If `predicted`, as in appendix C, v is the last layer's prediction from the layer
below. v is not inferred and has no prediction error. If `free`, v is inferred and has a prediction error. Let the label
be clamped and L1 have weight 1. At the minimum of E, a free capsule with prediction f_j then has the length
(|f_j| + t_j - 1) / 2, or 0 if this is negative. As |f_j| < 1, only the capsule with t_j = 1 stays active.

The gradient with respect to a layer's activities depends on the errors of this layer and of the layer above. For free
v, L1 has no derivative at its minimum v = 0. So gradient steps leave L1 out. After each gradient step, a proximal step
for L1 shortens the capsules.

Sparsity is measured on the lengths of a layer's capsules, after the forward pass and after inference.
Shapes: B images, n class capsules of D numbers.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot
from tqdm import tqdm

from pipeline.data.datasets import Dataset
from pipeline.errors import UserError
from pipeline.probes.sparsity import effective_number, entropy_of_shares, hoyer
from pipeline.results.outcome import Outcome
from pipeline.results.spread import nest, stack_replicas
from pipeline.systems.capsnet.model.capsnet import CapsNet, Layer, forward_pass
from pipeline.systems.capsnet.settings import InferCondition, InferParams

FORWARD, START = "forward", "start"
"""Conditions without inference: the forward pass on all test images, and on the images that are used for inference."""
EXAMPLES = 6
BATCH = 500
_SILENT = 1e-6
"""Capsules of at most this length count as silent."""
_SATURATED = 0.9
"""Longer capsules are saturated: if the squash's input grows by 1 %, the length L grows by 2 (1 - L) %, under 0.2 %."""


def _shortens(condition: InferCondition) -> bool:
    """Whether a proximal step replaces the gradient of the penalty (see the module's docstring)."""
    return condition.output == "free" and condition.penalty == "L1"


def energies_and_gradients(
    layers: Sequence[Layer], constant: Tensor, activities: Sequence[Tensor], condition: InferCondition, target: Tensor
) -> tuple[Tensor, tuple[Tensor, ...], Tensor]:
    """The terms of the energies of B images, and the gradients of the energies with respect to inferred activities.

    Args:
        activities: activities of each inferred layer, `[B, ...]`. The images are not among them.
        constant: the prediction of the first layer's activities from the images.
        target: 1 for the class of each image, else 0, `[B, n]` for n classes. It is not used if the label is free.

    Returns:
        energies `[terms, B]`: an error for each inferred layer, then the label's error and the penalty; gradients in
        the shapes of `activities`, without L1 if a proximal step replaces its gradient; class capsules `[B, n, D]`.
    """
    with torch.enable_grad():
        leaves = [each.detach().requires_grad_() for each in activities]
        predictions = [constant, *(layer(below) for layer, below in zip(layers[1:], leaves[:-1], strict=False))]
        capsules = leaves[-1] if condition.output == "free" else layers[-1](leaves[-1])
        lengths = capsules.norm(dim=-1)
        label = penalty = torch.zeros_like(lengths[:, 0])
        if condition.label == "clamped":
            label = (target - lengths).square().sum(1) / 2
        if condition.penalty == "L1":
            penalty = condition.weight * lengths.sum(1)
        if condition.penalty == "L2":
            penalty = condition.weight * lengths.square().sum(1) / 2
        errors = [(x - fx).square().flatten(1).sum(1) / 2 for x, fx in zip(leaves, predictions, strict=True)]
        terms = torch.stack([*errors, label, penalty])
        gradients = torch.autograd.grad((terms[:-1] if _shortens(condition) else terms).sum(), leaves)
    return terms.detach(), gradients, capsules.detach()


@torch.no_grad()
def infer(
    layers: Sequence[Layer],
    images: Tensor,
    condition: InferCondition,
    target: Tensor,
    *,
    steps: Iterable[int],
    rate: float,
) -> tuple[list[Tensor], Tensor, Tensor]:
    """Minimise the energy of all images by gradient descent from the forward pass, where prediction errors are 0.

    Args:
        layers: functions of the layer below. The first takes images, the last returns class capsules `[B, n, D]`.
        target: as in `energies_and_gradients`.
        steps: any iterable with one element per step, for example a progress bar.

    Returns:
        activities `[B, ...]` of each inferred layer; class capsules `[B, n, D]`; energies `[steps + 1, terms, B]`
        before the first step and after every step.

    Raises:
        UserError: inference diverged.
    """
    activities = forward_pass(layers if condition.output == "free" else layers[:-1], images)
    constant = activities[0]
    found = []
    for _ in steps:
        terms, gradients, _ = energies_and_gradients(layers, constant, activities, condition, target)
        activities = [x - rate * gradient for x, gradient in zip(activities, gradients, strict=True)]
        if _shortens(condition):
            lengths = activities[-1].norm(dim=-1, keepdim=True).clamp_min(torch.finfo(images.dtype).tiny)
            activities[-1] = activities[-1] * (1 - rate * condition.weight / lengths).clamp_min(0)
        found.append(terms)
    terms, _, capsules = energies_and_gradients(layers, constant, activities, condition, target)
    energies = torch.stack([*found, terms])
    if not energies.isfinite().all():
        raise UserError(f"inference diverged at rate {rate:g}: lower it")
    return activities, capsules, energies


@torch.no_grad()
def sparsity_of_inference(
    models: Sequence[CapsNet], dataset: Dataset, settings: InferParams, device: torch.device, title: str
) -> Outcome:
    """Sparsity after the forward pass on all test images, and after inference on the first `settings.images` of them.

    The networks' parameters are frozen: inference changes only activities.

    Returns:
        numbers by condition, layer ("middle", "class") and measure, and a table with a row per replica, condition and
        layer. Arrays are of the first replica: `images`, `labels` and `capsules_<condition> [k, n, D]` of k examples,
        and `energies_<condition> [steps + 1, terms]`, means over all images used for inference. The measures are:

        - all rows: images (their number); silent (share of images without an active capsule); for the other images, the
          means hoyer, entropy and effective_number, and the standard error of hoyer (hoyer_standard_error)
        - rows of a forward pass: saturated (share of capsules); length_sd (sd over the capsules of an image, mean over
          images); hoyer_inputs (Hoyer's index before the squash)
        - rows of class capsules: right (share of images in which the capsule of the image's class is longest and not
          silent); length_right and length_others (mean lengths of this capsule and of the other capsules)
        - class capsules after inference: energy (mean over images); falls (share of images whose energy never rose);
          last_drop (fall of the energy in the last tenth of the steps, divided by the energy before these steps)

    Raises:
        UserError: inference diverged.
    """
    images, labels = dataset.part("test")
    pixels, classes = torch.from_numpy(images).float() / 255, torch.from_numpy(labels).to(device)
    count = min(settings.images, len(images))
    shown = min(EXAMPLES, count)
    some, target = pixels[:count].to(device), one_hot(classes[:count], models[0].params.classes).float()
    arrays: dict[str, NDArray[np.generic]] = {"images": images[:shown, 0], "labels": labels[:shown]}
    tables = []
    for number, model in enumerate(models):
        model.requires_grad_(False)
        layers = model.layers()
        batches = [forward_pass(layers, batch.to(device))[2:] for batch in pixels.split(BATCH)]
        whole = [torch.cat(layer) for layer in zip(*batches, strict=True)]
        rows = _rows(FORWARD, whole, classes) + _rows(START, [each[:count] for each in whole], classes)
        found = {f"capsules_{START}": whole[-1][:shown]}
        for condition in settings.conditions:
            name = condition.name
            steps = tqdm(range(settings.steps), desc=title, unit="step", leave=False)
            inferred: list[Layer] = layers if condition.rectified else [model.first, *layers[1:]]
            activities, capsules, energies = infer(inferred, some, condition, target, steps=steps, rate=settings.rate)
            of_middle = [activities[2]] if model.middle else []
            rows += _rows(name, [*of_middle, capsules], classes, descent(energies))
            found |= {f"capsules_{name}": capsules[:shown], f"energies_{name}": energies.mean(-1)}
        if number == 0:
            arrays |= {name: each.cpu().numpy() for name, each in found.items()}
        tables.append(pd.DataFrame(rows))
    table = stack_replicas(tables)
    long = table.melt(id_vars=["replica", "condition", "layer"], var_name="measure").dropna()
    numbers: dict[str, Any] = {"condition": nest(long, ["condition", "layer", "measure"], "value"), "images": count}
    headline = tuple(f"condition.{name}.class.hoyer" for name in numbers["condition"])
    return Outcome("inference", table, numbers, headline, arrays)


def _rows(
    name: str, capsules: Sequence[Tensor], classes: Tensor, descent: dict[str, float] | None = None
) -> list[dict[str, Any]]:
    """A row of measures for each layer of capsules: the middle layer, if there is one, then the class capsules."""
    rows: list[dict[str, Any]] = []
    for layer, each in zip(("middle", "class")[-len(capsules) :], capsules, strict=True):
        lengths = each.norm(dim=-1).double().cpu().numpy()
        rows.append({"condition": name, "layer": layer, "images": len(each), **_indices(lengths)})
        if descent is None:  # measure the squash's inputs, too: for large inputs s, lengths s^2 / (1 + s^2) are near 1
            inputs = np.sqrt(lengths / np.maximum(1 - lengths, np.finfo(np.float32).eps))
            rows[-1] |= {
                "saturated": float((lengths > _SATURATED).mean()),
                "length_sd": float(lengths.std(axis=1).mean()),
                "hoyer_inputs": float(hoyer(inputs).mean()),
            }
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
    """Measures of sparsity of lengths `[B, n]` (see `sparsity_of_inference`). Only `silent` if no capsule is active."""
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


def descent(energies: Tensor) -> dict[str, float]:
    """`energy`, `falls` and `last_drop` of energies `[steps + 1, terms, B]`. `sparsity_of_inference` explains them."""
    whole = energies.double().sum(1)  # (steps + 1, B)
    rounding = 1e-5 * whole[0].clamp_min(1e-3)  # the energy may rise by this much in single precision
    falls = (whole.diff(dim=0) <= rounding).all(0)
    mean = whole.mean(1)
    late = mean[-1 - math.ceil((len(mean) - 1) / 10)]
    return {
        "energy": float(mean[-1]),
        "falls": float(falls.double().mean()),
        "last_drop": float((late - mean[-1]) / late) if late > 0 else 0.0,
    }
