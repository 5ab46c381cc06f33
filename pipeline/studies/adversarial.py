"""Attacks on classifiers: images changed a little so that they are taken for something else (document 004, section 6).

The fast gradient sign method (FGSM) moves every pixel by epsilon in the direction that raises the loss, or, targeted,
lowers the loss of another class; the basic iterative method (BIM) does so in several smaller steps. Pixels stay in
[0, 1]; epsilons are in these units. Every model is attacked through its own loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from tqdm import tqdm

from pipeline.data.datasets import Dataset
from pipeline.models.classifier import Classifier
from pipeline.outcome import Outcome
from pipeline.params import AttackParams, CropParams
from pipeline.studies.classification import BATCH, scores, seen
from pipeline.studies.summary import nest, spread

_EVALUATED = torch.tensor(torch.inf)
"""The epoch that losses are taken at: schedules are over."""


@dataclass(frozen=True)
class Attack:
    """How images are changed.

    Attributes:
        steps: 1 for FGSM, several for BIM; each moves by epsilon / steps.
        targeted: towards a class, rather than away from the right one.
    """

    steps: int
    targeted: bool

    @property
    def method(self) -> str:
        return "FGSM" if self.steps == 1 else "BIM"


def gradient(model: Classifier, images: Tensor, labels: Tensor) -> Tensor:
    """Of each image's loss by its pixels, `[N, C, s, s]`."""
    found = []
    for pixels, classes in zip(images.split(BATCH), labels.split(BATCH), strict=True):
        leaf = pixels.detach().requires_grad_()
        loss = model.losses(model.scores(leaf), classes, _EVALUATED.to(pixels.device)).sum()
        found.append(torch.autograd.grad(loss, leaf)[0])
    return torch.cat(found)


def attacked(model: Classifier, images: Tensor, classes: Tensor, epsilon: float, attack: Attack) -> Tensor:
    """Images after an attack through `model`.

    Args:
        images: `[N, C, s, s]` in [0, 1].
        classes: right ones, or those aimed at.
    """
    changed, sign = images, -1 if attack.targeted else 1
    for _ in range(attack.steps if epsilon else 0):
        step = sign * epsilon / attack.steps * gradient(model, changed, classes).sign()
        changed = (changed + step).clamp(0, 1)
    return changed


def white_box(model: Classifier, images: Tensor, labels: Tensor, epsilons: Sequence[float], steps: int) -> pd.DataFrame:
    """Columns method, kind, epsilon, value: accuracy under general attacks; under targeted ones the share of images
    that end in the class aimed at, over all wrong classes.
    """
    count = scores(model, images[:1]).shape[-1]
    rows = []
    for attack in (Attack(1, False), Attack(steps, False), Attack(1, True), Attack(steps, True)):
        for epsilon in epsilons:
            if attack.targeted:
                hits = []
                for target in range(count):
                    others = labels != target
                    aimed = torch.full_like(labels[others], target)
                    hits.append(_hits(model, attacked(model, images[others], aimed, epsilon, attack), aimed))
                value = float(torch.cat(hits).mean())
            else:
                value = float(_hits(model, attacked(model, images, labels, epsilon, attack), labels).mean())
            rows.append((attack.method, "targeted" if attack.targeted else "general", epsilon, value))
    return pd.DataFrame(rows, columns=["method", "kind", "epsilon", "value"])


def black_box(
    source: Classifier,
    victims: dict[str, Classifier],
    images: Tensor,
    labels: Tensor,
    epsilons: Sequence[float],
    steps: int,
) -> pd.DataFrame:
    """Columns method, victim, epsilon, value: accuracy of other models on images made through `source`."""
    rows = []
    for attack in (Attack(1, False), Attack(steps, False)):
        for epsilon in epsilons:
            changed = attacked(source, images, labels, epsilon, attack)
            rows += [
                (attack.method, name, epsilon, float(_hits(victim, changed, labels).mean()))
                for name, victim in victims.items()
            ]
    return pd.DataFrame(rows, columns=["method", "victim", "epsilon", "value"])


def gradient_sizes(model: Classifier, images: Tensor, labels: Tensor) -> dict[str, float]:
    """Share of the loss's derivatives by pixels that are exactly 0, and the median size of the others (1 / pixel unit).

    Hard to attack for want of a gradient is not robust: exact zeros would be a sign of it.
    """
    sizes = gradient(model, images, labels).abs().flatten()
    others = sizes[sizes > 0]
    return {
        "zeros": float((sizes == 0).double().mean()),
        "median": float(np.median(others.cpu().numpy())) if len(others) else 0.0,
    }


def outcome(
    capsules: Sequence[Classifier],
    cnns: Sequence[Classifier],
    dataset: Dataset,
    attack: AttackParams,
    augmentation: CropParams,
    title: str,
) -> Outcome:
    """White-box attacks on all replicas of both networks; black-box ones through the first convolutional network, on
    the other convolutional networks and on the capsules; and how large gradients are.

    Args:
        title: shown beside the progress bar.
    """
    images, labels = dataset.part("test")
    device = next(capsules[0].parameters()).device
    pixels = seen(images[: attack.images], augmentation).to(device)
    classes = torch.from_numpy(labels[: attack.images]).to(device)
    white, sizes = [], []
    networks = [("capsules", i, model) for i, model in enumerate(capsules)]
    networks += [("cnn", i, model) for i, model in enumerate(cnns)]
    for network, replica, model in tqdm(networks, desc=title, unit="network"):
        found = white_box(model, pixels, classes, attack.epsilons, attack.steps)
        white.append(found.assign(network=network, replica=replica))
        sizes.append((network, gradient_sizes(model, pixels, classes)))
    victims = {f"capsules-{i}": model for i, model in enumerate(capsules)}
    victims |= {f"cnn-{i}": model for i, model in enumerate(cnns) if i}
    black = black_box(cnns[0], victims, pixels, classes, attack.epsilons, attack.steps)
    black[["network", "replica"]] = black.pop("victim").str.split("-", expand=True)
    table = pd.concat([*white, black.assign(kind="black-box", replica=black["replica"].astype(int))])
    table["at"] = table["epsilon"].map("{:g}".format)
    numbers = {
        "value": nest(table, ["method", "kind", "network", "at"], "value"),
        "gradient": {
            network: {key: spread(size[key] for name, size in sizes if name == network) for key in ("zeros", "median")}
            for network in ("capsules", "cnn")
        },
    }
    columns = ["network", "replica", "method", "kind", "epsilon", "value"]
    attacks = {
        f"{network}-{epsilon:g}": attacked(model, pixels[:8], classes[:8], epsilon, Attack(1, False)).cpu().numpy()
        for network, model in (("capsules", capsules[0]), ("cnn", cnns[0]))
        for epsilon in (0.0, min(attack.epsilons, key=lambda e: abs(e - 0.1)), max(attack.epsilons))
    }
    return Outcome(table[columns].reset_index(drop=True), numbers, attacks)


def _hits(model: Classifier, images: Tensor, classes: Tensor) -> Tensor:
    return (scores(model, images).argmax(-1) == classes).double()
