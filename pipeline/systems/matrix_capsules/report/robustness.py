"""Adversarial attacks on matrix capsules and on the convolutional network (document 004, section 6, Figures 3 and B.3).

Means over epsilons are of all above 0, each counted alike, whatever the grid of a study is. At every epsilon the same
images are attacked, so that such a mean is as noisy as a number of one epsilon, of as many images.

Both networks see the same images, too, and most often fail on the same ones. Tables hold no single predictions, so that
standard errors are those of different images, which are then too large rather than too small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from pipeline.drawing.drawings import Drawing, Written
from pipeline.drawing.pictures import image_rows
from pipeline.drawing.style import FAINT, in_house_style, panels
from pipeline.results.documents import remarks
from pipeline.results.findings import Finding, Measure, Remark
from pipeline.results.measured import SIGNIFICANT_SES, Measured
from pipeline.results.provenance import dataset_label
from pipeline.results.reading import Numbers, Results, with_training
from pipeline.systems.matrix_capsules.report.runs import LOOKS, NETWORKS

COLUMNS = ("network", "replica", "method", "kind", "epsilon", "value", "own_loss")
METHODS = {"FGSM": "-", "BIM": "--"}
"""Methods of attack, and their lines."""
LARGEST_UNDETECTED = 5.0
"""Points: where so large a difference would not be significant, too few images are there to say that there is none."""
KINDS = {
    "general": ("away from the class", "accuracy (%)"),
    "targeted": ("towards another class", "success (%)"),
    "black-box": ("through another CNN", "accuracy (%)"),
}
"""Kinds of attacks, in words, and what is measured of them."""
_MANY_TIMES = 20
"""Where the largest epsilon is so many times the smallest, their axis is logarithmic."""

Answer = tuple[Measured, bool, list[str]]
"""Our number, whether the claim holds, and what else was seen."""


class Attacked(NamedTuple):
    """An executed study of attacks.

    Attributes:
        table: columns as `COLUMNS`, values as shares.
        images: test images attacked.
        chance: percent, accuracy of a guess.
    """

    numbers: Numbers
    table: pd.DataFrame
    images: int
    chance: float

    @classmethod
    def of(cls, item: str, numbers: Numbers, table: pd.DataFrame) -> Attacked:
        settings = numbers.settings.attack[item]
        images = int(min(settings.images, numbers.dataset_of(settings.capsules).test))
        return cls(numbers, table, images, 100 / int(numbers.run(settings.capsules).model.classes))

    def both(self, kind: str, method: str, column: str = "value") -> list[pd.DataFrame]:
        """Of the capsules and of the convolutional network, percent, `[epsilons, replicas]`, epsilons rising; column
        `own_loss` is of attacks through a network's own loss alone, as the document's.
        """
        rows = self.table[(self.table["kind"] == kind) & (self.table["method"] == method)]
        of_networks = (rows[rows["network"] == network] for network in NETWORKS)
        return [100 * each.pivot_table(column, "epsilon", "replica") for each in of_networks]

    def noise(self, percent: float) -> float:
        """Standard error, in points, of a percentage of the images attacked (binomial)."""
        return math.sqrt(max(percent * (100 - percent), 0.0) / self.images)

    def difference(
        self, pair: Sequence[Measured], left: Sequence[Measured] = (), before: Sequence[float] = ()
    ) -> Measured:
        """Of the capsules' and the other network's number, with its standard error: binomial parts of the images
        attacked, which are known of a single seed, too, and parts from the spread over replicas.

        Args:
            left: accuracies, where the numbers are something else.
            before: accuracies before, where the difference is of what was lost, as if their images were others.
        """
        of_images = [self.noise(share) for share in (*before, *(each.mean for each in left or pair))]
        error, (ours, theirs) = math.hypot(*of_images, *(each.se for each in pair)), pair
        return Measured(ours.mean - theirs.mean, error, min(ours.n, theirs.n), standard_error=True)

    def through_own_loss(self, method: str) -> str:
        """What the document's attacks, through a network's own loss alone, leave, in words."""
        ours, cnn = (_above_0(each).mean(axis=1) for each in self.both("general", method, "own_loss"))
        return (
            "attacked through their own losses alone, as in the document: capsules "
            f"{ours.mean():.1f} %, at the worst epsilon {ours.min():.1f} %; CNN {cnn.mean():.1f} and {cnn.min():.1f} %"
        )


def _measure(check: Callable[[Attacked], Answer]) -> Measure:
    """The measure of a claim by a check; there is no answer where nothing but epsilon 0, or all but it, was tried."""

    def measure(results: Results) -> Finding | None:
        item, numbers = results.answering("attack", results.evidence.matrix_capsules.attack)
        table = results.table("attack", item, COLUMNS)
        if table is None or table["epsilon"].min() > 0 or table["epsilon"].max() <= 0:
            return None
        study, networks = Attacked.of(item, numbers, table), [numbers.settings.attack[item][each] for each in NETWORKS]
        ours, holds, notes = check(study)
        said, of_cnn = (
            remarks("matrix_capsules", document, numbers.run(name), numbers.dataset_of(name), tested=study.images)
            for document, name in zip(("iterations_3", "cnn"), networks, strict=True)
        )
        said += [Remark(f"CNN: {words}", words.kind) for words in of_cnn if words not in said]
        return Finding(ours, with_training(results, numbers, *networks), holds=holds, remarks=said, notes=notes)

    return measure


def _above_0(curves: pd.DataFrame) -> pd.DataFrame:
    return curves[curves.index > 0]


def _means(curves: Sequence[pd.DataFrame]) -> list[Measured]:
    """Over epsilons above 0, of either network."""
    return [Measured.of(_above_0(each).mean()) for each in curves]


def _too_few(allowed: float) -> list[str]:
    """The note that so many points are too many to tell a difference; empty if they are not."""
    told = allowed <= LARGEST_UNDETECTED
    return [] if told else [f"too few images to tell: that may be {LARGEST_UNDETECTED:g} points at most"]


def loses_less(found: Attacked, method: str) -> Answer:
    """Figure 3: points of accuracy lost, of those at epsilon 0, by the capsules less by the convolutional network; mean
    over epsilons.

    It holds where that is fewer by more than two standard errors, and so much more is left: a network near chance
    has nothing to lose.
    """
    both = found.both("general", method)
    lost, left = _means([each.loc[[0.0]].mean() - each for each in both]), _means(both)
    clean = [float(each.loc[[0.0]].mean().mean()) for each in both]
    less, more = found.difference(lost, left, clean), found.difference(left)
    notes = [
        f"lost, mean over epsilons: capsules {lost[0].mean:.1f} points, CNN {lost[1].mean:.1f}; "
        f"accuracy before: {clean[0]:.1f} % and {clean[1]:.1f} %",
        f"left, mean over epsilons: capsules {left[0].mean:.1f} %, CNN {left[1].mean:.1f} %; standard error of the "
        f"difference {more.se:.1f} points",
        found.through_own_loss(method),
    ]
    if none := found.numbers.number("gradient", "capsules", "without", "mean"):
        notes.append(f"the capsules' own loss has no gradient at {100 * none:.0f} % of the images")
    holds = less.mean < -SIGNIFICANT_SES * less.se and more.mean > SIGNIFICANT_SES * more.se
    return less, holds, notes


def targets_are_missed(found: Attacked) -> Answer:
    """Figure 3: success rate of targeted attacks, mean over epsilons and methods, on capsules less that on the CNN.

    It holds where it is lower by either method, by more than two standard errors.
    """
    rates = {method: _means(found.both("targeted", method)) for method in METHODS}
    by_method = [found.difference(pair) for pair in rates.values()]
    notes = [
        f"{method}: {ours.mean:.1f} % on capsules, {cnn.mean:.1f} % on the CNN" for method, (ours, cnn) in rates.items()
    ]
    mean = [
        # Of the same replicas: the spread of the mean is at most the mean of both.
        Measured((first.mean + second.mean) / 2, (first.sd + second.sd) / 2, min(first.n, second.n))
        for first, second in zip(*rates.values(), strict=True)
    ]
    return found.difference(mean), all(each.mean < -SIGNIFICANT_SES * each.se for each in by_method), notes


def stays_above_chance(found: Attacked) -> Answer:
    """Section 6: the lowest accuracy of the capsules (percent) under general attacks, over epsilons and methods.

    It holds where that is not below chance by more than two standard errors (binomial, of the images attacked), if
    these are few enough points to tell.
    """
    lowest, notes = [], []
    for method in METHODS:
        both = map(_above_0, found.both("general", method))
        rows = [each.iloc[int(each.mean(axis=1).to_numpy().argmin())] for each in both]
        words = [
            f"{name} {row.mean():.1f} % at epsilon {row.name:g}"
            for name, row in zip(NETWORKS.values(), rows, strict=True)
        ]
        lowest.append(Measured.of(rows[0]))
        notes += [f"lowest under {method}: {', '.join(words)}", found.through_own_loss(method)]
    allowed = SIGNIFICANT_SES * found.noise(found.chance)
    notes.append(f"chance is {found.chance:.0f} %, two standard errors of {found.images:,} images {allowed:.1f} points")
    ours, few = min(lowest, key=lambda accuracy: accuracy.mean), _too_few(allowed)
    return ours, ours.mean >= found.chance - allowed and not few, notes + few


def transfer_hurts_both(found: Attacked) -> Answer:
    """Section 6: accuracy under black-box attacks, mean over epsilons and methods, of the capsules less the CNN's.

    It holds where that is within two standard errors, if these are few enough points to tell, and so is the difference
    of what is lost of the accuracy before: a network that was worse before is hurt less where both keep as much.
    """
    curves = {method: found.both("black-box", method) for method in METHODS}
    means = {method: [_above_0(each).mean() for each in both] for method, both in curves.items()}
    before = [each.loc[[0.0]].mean() for each in curves["FGSM"]]
    after: list[pd.Series[float]] = [pd.concat(each, axis=1).mean(axis=1) for each in zip(*means.values(), strict=True)]
    left = [Measured.of(each) for each in after]
    lost = [Measured.of(first - then) for first, then in zip(before, after, strict=True)]
    clean = [float(each.mean()) for each in before]
    kept, hurt = found.difference(left), found.difference(lost, left, clean)
    alike = all(abs(each.mean) <= SIGNIFICANT_SES * each.se for each in (kept, hurt))
    few = _too_few(SIGNIFICANT_SES * kept.se)
    notes = [
        *(f"{method}: capsules {a.mean():.1f} %, other CNNs {b.mean():.1f} %" for method, (a, b) in means.items()),
        f"on the images as they are: {clean[0]:.1f} % and {clean[1]:.1f} %",
        f"lost: capsules {lost[0].mean:.1f} points, other CNNs {lost[1].mean:.1f}",
        f"standard error of the difference {kept.se:.1f} points, of what is lost {hurt.se:.1f} "
        f"({found.images:,} images)",
    ]
    return kept, alike and not few, notes + few


def gradients_are_there(found: Attacked) -> Answer:
    """Section 6: share of the loss's derivatives by pixels that are exactly 0, in capsules (percent).

    The loss is the network's own: the spread loss is exactly 0 where its margin is met.
    """
    numbers = found.numbers
    capsules, cnn = (numbers.needed("gradient", network, "zeros") for network in NETWORKS)
    ours, theirs = (numbers.needed("gradient", network, "median").mean for network in NETWORKS)
    ratio = f", {theirs / ours:.3g} times as large" if ours > 0 else ""
    notes = [
        f"exactly 0: {100 * capsules.mean:.2f} % in capsules, {100 * cnn.mean:.2f} % in the CNN",
        f"median size of the others: {ours:.2g} in capsules, {theirs:.2g} in the CNN{ratio}",
    ]
    logits = [numbers.measured("cross_entropy_gradient", network, "zeros") for network in NETWORKS]
    shares = [f"{100 * share.mean:.2f} %" for share in logits if share]
    if shares:
        notes.append(f"of the cross-entropy of the logits: {shares[0]} in capsules, {shares[1]} in the CNN")
    return capsules.scaled(100), capsules.mean <= cnn.mean, notes


MEASURES: dict[str, Measure] = {
    "004.fig3.fgsm": _measure(partial(loses_less, method="FGSM")),
    "004.fig3.bim": _measure(partial(loses_less, method="BIM")),
    "004.fig3.target": _measure(targets_are_missed),
    "004.floor": _measure(stays_above_chance),
    "004.blackbox": _measure(transfer_hurts_both),
    "004.gradzeros": _measure(gradients_are_there),
}


def draw(results: Results, written: Written) -> Iterator[Drawing]:
    """For each study the curves of Figure 3, and the images that attacks made."""
    for item, numbers in results.executed("attack"):
        label, table = dataset_label(numbers.records), written.table(results, "attack", item, COLUMNS)
        if table is not None:
            study = Attacked.of(item, numbers, table)
            yield Drawing(
                f"matrix-attacks-{item}",
                "svg",
                f"Adversarial attacks on matrix capsules and on the CNN, {item}",
                "Left: accuracy on images whose pixels are changed by up to epsilon, away from the correct class. "
                "Middle: how often an attack towards another class succeeds. Right: accuracy on images attacked "
                f"through another CNN (Figure 3 of document 004; {study.images:,} images of {label}). Bands "
                "are one sd over seeds; dotted is chance.",
                "Three line plots over epsilon, a line for each network and method.",
                numbers.records,
                partial(curves, study),
            )
        arrays = written.examples(results, "attack", item, ())
        if arrays is not None:
            yield Drawing(
                f"matrix-attacked-{item}",
                "png",
                f"Images that FGSM made, {item}",
                "Test images before and after attacks on each network, away from the correct class (Figure B.3 of "
                f"document 004; {label}).",
                "A grid of images, a row for each network and epsilon.",
                numbers.records,
                partial(attacked, arrays),
            )


@in_house_style
def curves(study: Attacked) -> Figure:
    """Figure 3: accuracy under general attacks, success of targeted ones, accuracy under black-box ones (percent)."""
    epsilons = study.table["epsilon"]
    smallest, largest = epsilons[epsilons > 0].min(), epsilons.max()
    figure, axes = panels(len(KINDS), 2.6, sharex=True)
    for axis, (kind, (title, words)) in zip(axes, KINDS.items(), strict=True):
        for place, (network, (colour, marker)) in enumerate(LOOKS.items()):
            for method, line in METHODS.items():
                percents = study.both(kind, method)[place]
                means, sds = percents.mean(axis=1), percents.std(axis=1)
                axis.plot(
                    means.index, means, color=colour, marker=marker, linestyle=line, markersize=3.5,
                    label=f"{NETWORKS[network]}, {method}",
                )  # fmt: skip
                if sds.notna().all():
                    axis.fill_between(means.index, means - sds, means + sds, color=colour, alpha=0.15, linewidth=0)
        if kind != "targeted":
            axis.axhline(study.chance, color=FAINT, linestyle=":", linewidth=1, label="chance")
        axis.set(title=title, xlabel="epsilon", ylabel=words, ylim=(-2, 102))
        if largest > _MANY_TIMES * smallest:
            axis.set_xscale("symlog", linthresh=smallest, linscale=0.5)
            ticks = [0.0, *10.0 ** np.arange(math.ceil(math.log10(smallest)), math.log10(largest))]
            axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axis.minorticks_off()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, handlelength=2.8)
    return figure


def attacked(arrays: Mapping[str, np.ndarray]) -> Figure:
    """Figure B.3: images `[k, C, s, s]` in [0, 1], by "<network>-<epsilon>" (of a stereo pair the first)."""
    changed = sorted((float(name.partition("-")[2]), name.partition("-")[0]) for name in arrays)
    rows = [("as they are", arrays["capsules-0"])]
    rows += [
        (f"{NETWORKS[network]},\nepsilon {epsilon:g}", arrays[f"{network}-{epsilon:g}"])
        for epsilon, network in changed
        if epsilon > 0
    ]
    return image_rows([(words, images[:, 0]) for words, images in rows])
