"""Adversarial attacks on matrix capsules and on the convolutional network (document 004, section 6, Figures 3 and B.3).

Pixels are in [0, 1]. Epsilon is the most that an attack changes a pixel. A mean over epsilons is the plain mean of the
results at epsilons above 0. They all use the same images, so the mean is assumed to be as noisy as a single result.

Both networks are attacked on the same images, and often fail on the same ones. Result tables have no predictions for
single images, so standard errors of differences assume that the networks were attacked on different images. These
standard errors are too large rather than too small.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from pipeline.drawing.drawings import Drawing
from pipeline.drawing.pictures import image_rows
from pipeline.drawing.style import FAINT, in_house_style, panels
from pipeline.results.documents import remarks
from pipeline.results.findings import Finding, Measure, Remark
from pipeline.results.measured import SIGNIFICANT_SES, Measured
from pipeline.results.provenance import dataset_label
from pipeline.results.reading import NotMeasuredError, Numbers, Results, with_training
from pipeline.systems.matrix_capsules.report.runs import LOOKS, NETWORKS

COLUMNS = ("network", "replica", "method", "kind", "epsilon", "value", "own_loss")
METHODS = {"FGSM": "-", "BIM": "--"}
"""Line styles of the methods of attack: fast gradient sign (FGSM) and basic iterative (BIM)."""
LARGEST_UNDETECTED = 5.0
"""A study has enough images to rule out a difference if two standard errors are at most this many percentage points."""
KINDS = {
    "general": ("away from the correct class", "accuracy (%)"),
    "targeted": ("towards another class", "success (%)"),
    "black-box": ("computed on another CNN", "accuracy (%)"),
}
"""For each kind of attack, a description and the quantity that is measured."""

Answer = tuple[Measured, bool, list[str]]
"""The answer to a claim: our number, whether the claim holds, and notes."""


class Attacked(NamedTuple):
    """The results of one study of attacks.

    Attributes:
        percent: accuracies or success rates in percent. Rows are epsilons. Columns have five levels: measure, kind,
            method, network and replica. For the measure "own_loss", attacks use the gradient of the loss that the
            attacked network was trained with, as in the document. For "value", each image is also attacked by the
            gradient of the cross-entropy, and the more successful attack counts. Black-box attacks have "value" only.
            They use the training loss of another CNN.
        images: number of test images attacked.
        chance: accuracy of guessing, in percent.
    """

    numbers: Numbers
    percent: Any
    images: int
    chance: float

    @classmethod
    def of(cls, item: str, numbers: Numbers, table: pd.DataFrame) -> "Attacked":
        settings = numbers.settings.attack[item]
        images = int(min(settings.images, numbers.dataset_of(settings.capsules).test))
        percent = 100 * table.pivot_table(["value", "own_loss"], "epsilon", ["kind", "method", "network", "replica"])
        return cls(numbers, percent, images, 100 / int(numbers.run(settings.capsules).model.classes))

    def both(self, kind: str, method: str, column: str = "value") -> list[pd.DataFrame]:
        """Two tables of percentages, for the capsules and the CNN. Rows are epsilons above 0, columns are replicas."""
        attacks = self.percent[self.percent.index > 0]
        return [attacks[column, kind, method, network] for network in NETWORKS]

    def noise(self, percent: float) -> float:
        """The binomial standard error, in percentage points, of `percent`, a percentage of the attacked images."""
        return math.sqrt(max(percent * (100 - percent), 0.0) / self.images)

    def difference(self, pair: Sequence[Measured], shares: Sequence[float] = ()) -> Measured:
        """The capsules' number minus the CNN's (`pair`), with the standard error of this difference. The standard
        error combines the spread over replicas (0 for a single replica) with the binomial noise of the images attacked.

        Args:
            shares: all percentages that the two numbers were computed from. By default, these are the two numbers.
        """
        ours, theirs = pair
        of_images = [self.noise(share) for share in shares or (ours.mean, theirs.mean)]
        error = math.hypot(*of_images, *(each.se for each in pair))
        return Measured(ours.mean - theirs.mean, error, min(ours.n, theirs.n), standard_error=True)

    def compared(self, kind: str, *methods: str) -> tuple[Measured, Measured, list[str]]:
        """Two differences, capsules minus CNN, and a list of notes. The first difference is in accuracy under attack,
        the second in accuracy lost. Both are in percentage points, and averaged over epsilons and `methods`.
        """
        values = self.percent["value", kind][list(methods)]
        before, attacks = values.loc[0.0], values[values.index > 0]
        clean, left, lost = (
            [Measured.of(each.groupby(["network", "replica"]).mean()[network]) for network in NETWORKS]
            for each in (before, attacks.mean(), (before - attacks).mean())
        )
        kept, hurt = self.difference(left), self.difference(lost, [each.mean for each in (*clean, *left)])
        notes = [
            f"accuracy lost, mean over epsilons: capsules {lost[0].mean:.1f} points, CNN {lost[1].mean:.1f} points; "
            f"accuracy without attack: {clean[0].mean:.1f} % and {clean[1].mean:.1f} %",
            f"accuracy under attack, mean over epsilons: capsules {left[0].mean:.1f} %, CNN {left[1].mean:.1f} %; "
            f"standard error of the difference {kept.se:.1f} points",
        ]
        return kept, hurt, notes

    def through_own_loss(self, method: str) -> str:
        """A note on accuracies if attacks use only the attacked network's training loss, as in the document."""
        ours, cnn = (each.mean(axis=1) for each in self.both("general", method, "own_loss"))
        return (
            f"accuracy under {method} with the own loss only, as in the document, mean and minimum over epsilons: "
            f"capsules {ours.mean():.1f} and {ours.min():.1f} %, CNN {cnn.mean():.1f} and {cnn.min():.1f} %"
        )


def _measure(results: Results, check: Callable[[Attacked], Answer]) -> Finding:
    """Apply `check` to the study of attacks that evidence names."""
    item, numbers = results.answering("attack", results.evidence.matrix_capsules.attack)
    if (table := results.table("attack", item, COLUMNS)) is None:
        raise NotMeasuredError(f"the table of attack/{item} is missing")
    study, networks = Attacked.of(item, numbers, table), [numbers.settings.attack[item][each] for each in NETWORKS]
    ours, holds, notes = check(study)
    said, of_cnn = (
        remarks("matrix_capsules", document, numbers.run(name), numbers.dataset_of(name), tested=study.images)
        for document, name in zip(("iterations_3", "cnn"), networks, strict=True)
    )
    said += [Remark(f"CNN: {words}", words.kind) for words in of_cnn if words not in said]
    return Finding(ours, with_training(results, numbers, *networks), holds=holds, remarks=said, notes=notes)


def _too_few(allowed: float) -> list[str]:
    """A list with one note if `allowed` (two standard errors) exceeds `LARGEST_UNDETECTED`, otherwise an empty list."""
    few = f"too few images to decide: two standard errors may be at most {LARGEST_UNDETECTED:g} points"
    return [few] if allowed > LARGEST_UNDETECTED else []


def loses_less(found: Attacked, method: str) -> Answer:
    """Figure 3: percentage points of accuracy that capsules lose, minus those that the CNN loses; mean over epsilons.

    The claim holds if the capsules lose less and also stay more accurate, both by more than two standard errors. Losing
    less is not enough, because a network whose accuracy is near chance has nothing to lose.
    """
    more, less, notes = found.compared("general", method)
    notes.append(found.through_own_loss(method))
    if none := found.numbers.number("gradient", "capsules", "without", "mean"):
        notes.append(f"the capsules' own loss has no gradient at {100 * none:.0f} % of the images")
    holds = less.mean < -SIGNIFICANT_SES * less.se and more.mean > SIGNIFICANT_SES * more.se
    return less, holds, notes


def targets_are_missed(found: Attacked) -> Answer:
    """Figure 3: success rate of targeted attacks on capsules minus the rate on the CNN, mean over epsilons and methods.

    The claim holds if the capsules' rate is lower for each method, by more than two standard errors.
    """
    rates = {method: [Measured.of(each.mean()) for each in found.both("targeted", method)] for method in METHODS}
    by_method = [found.difference(pair) for pair in rates.values()]
    notes = [
        f"{method}: {ours.mean:.1f} % on capsules, {cnn.mean:.1f} % on the CNN" for method, (ours, cnn) in rates.items()
    ]
    mean = [
        # Both methods attack the same replicas, so the sd of the mean is at most the mean of both sds.
        Measured((first.mean + second.mean) / 2, (first.sd + second.sd) / 2, min(first.n, second.n))
        for first, second in zip(*rates.values(), strict=True)
    ]
    return found.difference(mean), all(each.mean < -SIGNIFICANT_SES * each.se for each in by_method), notes


def stays_above_chance(found: Attacked) -> Answer:
    """Section 6: the capsules' lowest accuracy (percent) under general attacks, among all epsilons and methods.

    The claim holds if this accuracy is at least chance minus two standard errors, and two standard errors are at most
    `LARGEST_UNDETECTED`. The standard error is that of an accuracy at chance (binomial, over the attacked images).
    """
    lowest, notes = [], []
    for method in METHODS:
        capsules, cnn = (each.iloc[int(each.mean(axis=1).argmin())] for each in found.both("general", method))
        lowest.append(Measured.of(capsules))
        notes += [
            f"lowest accuracy under {method}: capsules {capsules.mean():.1f} % at epsilon {capsules.name:g}, "
            f"CNN {cnn.mean():.1f} % at epsilon {cnn.name:g}",
            found.through_own_loss(method),
        ]
    allowed = SIGNIFICANT_SES * found.noise(found.chance)
    notes.append(f"chance: {found.chance:.0f} %; two standard errors of {found.images:,} images: {allowed:.1f} points")
    ours, few = min(lowest, key=lambda accuracy: accuracy.mean), _too_few(allowed)
    return ours, ours.mean >= found.chance - allowed and not few, notes + few


def transfer_hurts_both(found: Attacked) -> Answer:
    """Section 6: the capsules' accuracy minus the CNN's under black-box attacks, mean over epsilons and methods. The
    attacks use the gradients of another CNN.

    The claim holds if the networks differ by at most two standard errors, both in accuracy and in accuracy lost, and
    two standard errors are at most `LARGEST_UNDETECTED`. At equal accuracy, one network may have lost more.
    """
    kept, hurt, notes = found.compared("black-box", *METHODS)
    alike = all(abs(each.mean) <= SIGNIFICANT_SES * each.se for each in (kept, hurt))
    few = _too_few(SIGNIFICANT_SES * max(kept.se, hurt.se)) if alike else []
    return kept, alike and not few, notes + few


def gradients_are_there(found: Attacked) -> Answer:
    """Section 6: the percentage of exact zeros among the derivatives of the capsules' loss with respect to pixels.

    The loss is the training loss. The spread loss and its gradient are exactly 0 for an image whose correct class leads
    all others by the margin. The claim holds if the CNN's percentage is at least as large as the capsules'.
    """
    zeros, of_logits, sizes = (
        [found.numbers.needed(loss, network, measure) for network in NETWORKS]
        for loss, measure in (("gradient", "zeros"), ("cross_entropy_gradient", "zeros"), ("gradient", "median"))
    )
    notes = [
        f"derivatives {where} that are 0: {100 * ours.mean:.2f} % in capsules, {100 * theirs.mean:.2f} % in the CNN"
        for where, (ours, theirs) in (("of their own loss", zeros), ("of the cross-entropy of the logits", of_logits))
    ]
    others = f"median size of the others, own loss: {sizes[0].mean:.2g} in capsules, {sizes[1].mean:.2g} in the CNN"
    return zeros[0].scaled(100), zeros[0].mean <= zeros[1].mean, [*notes, others]


MEASURES: dict[str, Measure] = {
    "004.fig3.fgsm": partial(_measure, check=partial(loses_less, method="FGSM")),
    "004.fig3.bim": partial(_measure, check=partial(loses_less, method="BIM")),
    "004.fig3.target": partial(_measure, check=targets_are_missed),
    "004.floor": partial(_measure, check=stays_above_chance),
    "004.blackbox": partial(_measure, check=transfer_hurts_both),
    "004.gradzeros": partial(_measure, check=gradients_are_there),
}


def draw(results: Results) -> Iterator[Drawing]:
    """Yield up to two drawings per study of attacks: the curves of Figure 3, and the attacked images of Figure B.3."""
    for item, numbers in results.executed("attack"):
        label = dataset_label(numbers.records)
        if (table := results.table("attack", item, COLUMNS)) is not None:
            study = Attacked.of(item, numbers, table)
            yield Drawing(
                f"matrix-attacks-{item}",
                "svg",
                f"Adversarial attacks on matrix capsules and on the CNN, {item}",
                "Attacks change each pixel, in [0, 1], by at most epsilon. Left: accuracy under attacks away from the "
                "correct class. Middle: success rate of attacks towards another class. Right: accuracy under attacks "
                "that are computed on another CNN. Bands are one sd over seeds; dotted lines are chance (Figure 3 of "
                f"document 004; {study.images:,} images of {label}).",
                "Three line plots against epsilon, with a line for each network and method.",
                numbers.records,
                partial(curves, study),
            )
        if arrays := results.examples("attack", item, ()):
            yield Drawing(
                f"matrix-attacked-{item}",
                "png",
                f"Images before and after FGSM, {item}",
                "Test images before and after attacks on each network, away from the correct class. A pixel in [0, 1] "
                f"changes by at most epsilon (Figure B.3 of document 004; {label}).",
                "A row of test images, then a row of attacked images for each network and epsilon.",
                numbers.records,
                partial(attacked, arrays),
            )


@in_house_style
def curves(study: Attacked) -> Figure:
    """Draw Figure 3. Each panel shows a kind of attack: accuracy or, for targeted attacks, success rate (percent)."""
    smallest, largest = study.percent.index[study.percent.index > 0][[0, -1]]
    figure, axes = panels(len(KINDS), 2.6, sharex=True)
    for axis, (kind, (title, words)) in zip(axes, KINDS.items(), strict=True):
        for (network, (colour, marker)), (method, line) in product(LOOKS.items(), METHODS.items()):
            percents = study.percent["value", kind, method, network]
            means, sds = percents.mean(axis=1), percents.std(axis=1)
            label = f"{NETWORKS[network]}, {method}"
            axis.plot(means, color=colour, marker=marker, linestyle=line, markersize=3.5, label=label)
            axis.fill_between(means.index, means - sds, means + sds, color=colour, alpha=0.15, linewidth=0)
        if kind != "targeted":
            axis.axhline(study.chance, color=FAINT, linestyle=":", linewidth=1, label="chance")
        axis.set(title=title, xlabel="epsilon", ylabel=words, ylim=(-2, 102))
        if largest > 20 * smallest:
            axis.set_xscale("symlog", linthresh=smallest, linscale=0.5)
            ticks = [0.0, *10.0 ** np.arange(math.ceil(math.log10(smallest)), math.log10(largest))]
            axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axis.minorticks_off()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, handlelength=2.8)
    return figure


def attacked(arrays: Mapping[str, np.ndarray]) -> Figure:
    """Draw Figure B.3: channel 0 of images `[k, C, s, s]` in [0, 1]. The keys of `arrays` are "<network>-<epsilon>"."""
    changed = sorted(name.partition("-")[::-2] for name in arrays if not name.endswith("-0"))
    rows = [("not attacked", arrays["capsules-0"][:, 0])]
    for epsilon, network in changed:
        rows.append((f"{NETWORKS[network]},\nepsilon {epsilon}", arrays[f"{network}-{epsilon}"][:, 0]))
    return image_rows(rows)
