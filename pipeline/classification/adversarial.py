"""Adversarial attacks on classifiers: small changes of images that change the prediction (document 004, section 6).

The fast gradient sign method (FGSM) moves every pixel by epsilon, in the direction that raises the loss of the correct
class (a general attack) or lowers the loss of a wrong class (a targeted attack; the wrong class is the target). The
basic iterative method (BIM) takes several smaller steps. Pixels stay in [0, 1], and epsilon is in the same unit.

An attack *through* a model and a loss uses the gradient of this loss, computed with this model. White-box attacks go
through the attacked model and its training loss (its "own" loss). If matrix capsules are confident about an image, the
spread loss and its gradient are exactly 0, and this attack does not change the image. So a second white-box attack goes
through the cross-entropy of the logits. (It is omitted if the own loss is this cross-entropy.) An image counts as
correct only if it is classified correctly after both attacks. A targeted attack succeeds if the target is predicted
after at least one of the two. Black-box attacks go through another model (the source) and its own loss. Shapes: N
images of C channels and s x s pixels.
"""

from collections.abc import Sequence
from itertools import product
from typing import Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from tqdm import tqdm

from pipeline.classification.classifier import Classifier
from pipeline.classification.errors import BATCH, scores, seen
from pipeline.classification.settings import AttackParams
from pipeline.data.datasets import Dataset
from pipeline.results.outcome import Outcome
from pipeline.results.spread import nest

_EVALUATED = torch.tensor(torch.inf)
"""The epoch passed to losses. It is infinite, so that a loss that changes with the epoch has its final form."""
NETWORKS = ("capsules", "cnn")
Through = Literal["own", "cross-entropy"]
THROUGH: tuple[Through, ...] = ("own", "cross-entropy")
GRADIENTS: dict[str, Through] = {"gradient": "own", "cross_entropy_gradient": "cross-entropy"}
"""The losses whose `gradient_sizes` are measured. The keys are the names of these measurements in the result."""


def gradient(model: Classifier, images: Tensor, labels: Tensor, through: Through = "own") -> Tensor:
    """The gradient of each image's loss with respect to its pixels, `[N, C, s, s]`."""
    found = []
    for pixels, classes in zip(images.split(BATCH), labels.split(BATCH), strict=True):
        leaf = pixels.detach().requires_grad_()
        found.append(torch.autograd.grad(_losses(model, leaf, classes, through).sum(), leaf)[0])
    return torch.cat(found)


def attacked(
    model: Classifier,
    images: Tensor,
    classes: Tensor,
    epsilon: float,
    steps: int,
    *,
    targeted: bool = False,
    through: Through = "own",
    start: Tensor | None = None,
) -> Tensor:
    """The `images` (`[N, C, s, s]` in [0, 1]) after an attack through `model` that changes pixels by up to `epsilon`.

    Args:
        classes: `[N]`, the correct classes or, if `targeted`, the target classes.
        steps: number of steps, 1 for FGSM, several for BIM. Each step changes a pixel by up to epsilon / steps.
        targeted: whether to move towards `classes` rather than away from them.
        through: the loss whose gradient is used: the model's own, or the cross-entropy of its logits.
        start: the `gradient` for these images, classes and loss if it is already known. By default, it is computed.
    """
    changed, sign = images, -1 if targeted else 1
    for number in range(steps if epsilon else 0):
        slope = start if start is not None and number == 0 else gradient(model, changed, classes, through)
        changed = (changed + sign * epsilon / steps * slope.sign()).clamp(0, 1)
    return changed


def white_box(model: Classifier, images: Tensor, labels: Tensor, epsilons: Sequence[float], steps: int) -> pd.DataFrame:
    """Measure white-box attacks. The table has a row for each method, kind ("general" or "targeted") and epsilon.
    `value` is the accuracy after general attacks, or the share of targeted attacks that succeed. Every wrong class of
    every image is a target once. `own_loss` is the same measure, for attacks through the own loss only.
    """
    with torch.no_grad():
        own, other = (_losses(model, images[:BATCH], labels[:BATCH], each) for each in THROUGH)
    through = THROUGH[:1] if torch.equal(own, other) else THROUGH
    rows = []
    for kind, targeted in (("general", False), ("targeted", True)):
        goals = _wrong_classes(model, images, labels) if targeted else [(images, labels)]
        tries = [(goal, loss, gradient(model, *goal, loss)) for loss in through for goal in goals]
        attacks = list(product((("FGSM", 1), ("BIM", steps)), epsilons))
        for (method, number), epsilon in tqdm(attacks, desc=kind, unit="attack", leave=False):
            found = []
            for goal, loss, start in tries:
                changed = attacked(model, *goal, epsilon, number, targeted=targeted, through=loss, start=start)
                found.append(_hits(model, changed, goal[1]))
            hits = torch.cat(found).view(len(through), -1)
            value = (hits.amax(0) if targeted else hits.amin(0)).mean()
            rows.append((method, kind, epsilon, float(value), float(hits[0].mean())))
    return pd.DataFrame(rows, columns=["method", "kind", "epsilon", "value", "own_loss"])


def _losses(model: Classifier, images: Tensor, labels: Tensor, through: Through) -> Tensor:
    outputs = model.scores(images)
    if through == "own":
        return model.losses(outputs, labels, _EVALUATED.to(images.device))
    return torch.nn.functional.cross_entropy(model.logits(outputs), labels, reduction="none")


def _wrong_classes(model: Classifier, images: Tensor, labels: Tensor) -> list[tuple[Tensor, Tensor]]:
    """For each class, a pair: the n images of all other classes, and their targets `[n]`, which are this class."""
    targets = range(scores(model, images[:1]).shape[-1])
    others = [(target, labels != target) for target in targets]
    return [(images[other], torch.full_like(labels[other], target)) for target, other in others]


def black_box(
    source: Classifier,
    victims: Sequence[tuple[str, int, Classifier]],
    images: Tensor,
    labels: Tensor,
    epsilons: Sequence[float],
    steps: int,
) -> pd.DataFrame:
    """One row per victim (network, replica, model) and attack through `source`. `value` is the victim's accuracy."""
    rows = []
    for (method, number), epsilon in product((("FGSM", 1), ("BIM", steps)), epsilons):
        changed = attacked(source, images, labels, epsilon, number)
        rows += [
            (network, replica, method, epsilon, float(_hits(victim, changed, labels).mean()))
            for network, replica, victim in victims
        ]
    return pd.DataFrame(rows, columns=["network", "replica", "method", "epsilon", "value"])


def gradient_sizes(model: Classifier, images: Tensor, labels: Tensor, through: Through = "own") -> dict[str, float]:
    """Statistics of the absolute derivatives of a loss with respect to pixels. `zeros` is the share of derivatives that
    are exactly 0. `median` is the median of all other derivatives (0 if there are none). `without` is the share of
    images whose derivatives are all 0. A network that resists attacks only because its gradients are 0 is not robust.
    """
    sizes = gradient(model, images, labels, through).abs().flatten(1)
    others = sizes[sizes > 0]
    return {
        "zeros": float((sizes == 0).double().mean()),
        "median": float(np.median(others.cpu().numpy())) if len(others) else 0.0,
        "without": float((sizes == 0).all(1).double().mean()),
    }


def outcome(
    capsules: Sequence[Classifier],
    cnns: Sequence[Classifier],
    dataset: Dataset,
    attack: AttackParams,
    crop: int,
    title: str,
) -> Outcome:
    """Measure white-box attacks and `gradient_sizes` for all replicas of capsules and of convolutional networks.
    Black-box attacks go through `cnns[0]`, and are measured on all other replicas of both networks. The arrays of the
    outcome are a few attacked images. All attacks use central crops of `crop` x `crop` pixels.
    """
    images, labels = dataset.part("test")
    device = next(capsules[0].parameters()).device
    pixels = seen(images[: attack.images], crop).to(device)
    classes = torch.from_numpy(labels[: attack.images]).to(device)
    white, sizes, kinds = [], [], dict(zip(NETWORKS, (capsules, cnns), strict=True))
    networks = [(network, replica, model) for network in kinds for replica, model in enumerate(kinds[network])]
    for network, replica, model in tqdm(networks, desc=title, unit="network"):
        found = white_box(model, pixels, classes, attack.epsilons, attack.steps)
        white.append(found.assign(network=network, replica=replica))
        of_losses = {name: gradient_sizes(model, pixels, classes, loss) for name, loss in GRADIENTS.items()}
        sizes += [(name, network, *each) for name, measures in of_losses.items() for each in measures.items()]
    victims = [each for each in networks if each[2] is not cnns[0]]
    black = black_box(cnns[0], victims, pixels, classes, attack.epsilons, attack.steps)
    table = pd.concat([*white, black.assign(kind="black-box")])
    of_gradients = pd.DataFrame(sizes, columns=["loss", "network", "measure", "value"])
    table["at"] = table["epsilon"].map("{:g}".format)
    numbers = {
        "value": nest(table, ["method", "kind", "network", "at"], "value"),
        "own_loss": nest(table.dropna(), ["method", "kind", "network", "at"], "own_loss"),
        **nest(of_gradients, ["loss", "network", "measure"], "value"),
    }
    columns = ["network", "replica", "method", "kind", "epsilon", "value", "own_loss"]
    near, arrays = min(attack.epsilons, key=lambda epsilon: abs(epsilon - 0.1)), {}
    for network, epsilon in product(NETWORKS, (0.0, near, max(attack.epsilons))):
        # The gradient of the own loss may be 0. The attack would then change nothing. Cross-entropy avoids this.
        changed = attacked(kinds[network][0], pixels[:8], classes[:8], epsilon, 1, through="cross-entropy")
        arrays[f"{network}-{epsilon:g}"] = changed.cpu().numpy()
    headline = [
        f"value.{method}.{kind}.{network}.{near:g}"
        for kind, method, network in product(("general", "black-box"), ("FGSM", "BIM"), NETWORKS)
    ]
    return Outcome("attack", table[columns].reset_index(drop=True), numbers, tuple(headline), arrays)


def _hits(model: Classifier, images: Tensor, classes: Tensor) -> Tensor:
    return (scores(model, images).argmax(-1) == classes).double()
