"""Adversarial attacks on matrix capsules and on the convolutional network (document 004, section 6, Figures 3 and B.3).

Means over epsilons are of all above 0, each counted alike, whatever the grid of a study is. At every epsilon the same
images are attacked, so that such a mean is as noisy as a number of one epsilon, of as many images.

Both networks see the same images, too, and most often fail on the same ones. Tables hold no single predictions, so that
standard errors are those of different images, which are then too large rather than too small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

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
from pipeline.results.reading import Numbers, Recorded, Results, with_training
from pipeline.systems.matrix_capsules.report.runs import LOOKS, NETWORKS

COLUMNS = ("network", "replica", "method", "kind", "epsilon", "value", "own_loss")
METHODS = ("FGSM", "BIM")
LARGEST_UNDETECTED = 5.0
"""Points: where a difference of so many would not be significant, there are too few images to say that there is none.
"""
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


@dataclass(frozen=True)
class Attacked:
    """An executed study of attacks, with the settings that it recorded."""

    item: str
    numbers: Numbers

    @property
    def settings(self) -> Recorded:
        found: Recorded = self.numbers.settings.attack[self.item]
        return found

    @property
    def capsules(self) -> Recorded:
        """Settings of the capsules' run."""
        return self.numbers.run(self.settings.capsules)

    @property
    def dataset(self) -> Recorded:
        return self.numbers.dataset_of(self.settings.capsules)

    @property
    def images(self) -> int:
        """Test images attacked."""
        return int(min(self.settings.images, self.dataset.test))

    @property
    def chance(self) -> float:
        """Percent: accuracy of a guess."""
        return 100 / int(self.capsules.model.classes)

    def noise(self, percent: float) -> float:
        """Standard error, in points, of a percentage of the images attacked (binomial)."""
        return math.sqrt(max(percent * (100 - percent), 0.0) / self.images)

    def error(self, left: Sequence[Measured]) -> float:
        """Standard error of the difference of two accuracies: a binomial part of the images attacked, taken as if there
        were one epsilon, for all have the same images, and a part from the spread over replicas.
        """
        return math.hypot(*(part for each in left for part in (self.noise(each.mean), each.se)))

    def error_lost(self, clean: Sequence[float], left: Sequence[Measured], lost: Sequence[Measured]) -> float:
        """Standard error of the difference of the accuracies lost: binomial parts of the accuracies before and after,
        as if their images were different ones, and a part from the spread over replicas.
        """
        of_images = [self.noise(share) for share in (*clean, *(each.mean for each in left))]
        return math.hypot(*of_images, *(each.se for each in lost))


Check = Callable[[Attacked, pd.DataFrame], Answer]
"""Checks a claim on a study and its table (columns as `COLUMNS`, values as shares)."""


def _measure(check: Check) -> Measure:
    """The measure of a claim by a check; there is no answer where nothing but epsilon 0, or all but it, was tried."""

    def measure(results: Results) -> Finding | None:
        item, numbers = results.answering("attack", results.evidence.matrix_capsules.attack)
        table = results.table("attack", item, COLUMNS)
        if table is None or table["epsilon"].min() > 0 or table["epsilon"].max() <= 0:
            return None
        study = Attacked(item, numbers)
        ours, holds, notes = check(study, table)
        networks = study.settings.capsules, study.settings.cnn
        said, of_cnn = (
            remarks("matrix_capsules", document, numbers.run(name), study.dataset, tested=study.images)
            for document, name in zip(("iterations_3", "cnn"), networks, strict=True)
        )
        said += [Remark(f"CNN: {words}", words.kind) for words in of_cnn if words not in said]
        records = with_training(results, numbers, *networks)
        return Finding(ours, records, holds=holds, remarks=said, notes=notes)

    return measure


def _both(table: pd.DataFrame, kind: str, method: str, column: str = "value") -> list[pd.DataFrame]:
    """Of the capsules and of the convolutional network, percent, `[epsilons, replicas]`, epsilons rising.

    Args:
        column: `value`, or `own_loss` for attacks through a network's own loss alone, as the document's.
    """
    rows = table[(table["kind"] == kind) & (table["method"] == method)]
    return [
        100 * rows[rows["network"] == network].pivot_table(index="epsilon", columns="replica", values=column)
        for network in NETWORKS
    ]


def _above_0(curves: pd.DataFrame) -> pd.DataFrame:
    return curves[curves.index > 0]


def _difference(pair: Sequence[Measured], error: float) -> Measured:
    """Of two numbers, with its standard error: a single seed has no sd, but its images have a known noise."""
    ours, theirs = pair
    return Measured(ours.mean - theirs.mean, error, min(ours.n, theirs.n), standard_error=True)


def _crossings(capsules: pd.DataFrame, cnn: pd.DataFrame) -> list[tuple[float, float]]:
    """Neighbouring epsilons between which another network becomes the more accurate, by means over replicas."""
    lead = (capsules.mean(axis=1) - cnn.mean(axis=1)).dropna()
    lead = lead[lead != 0]
    signs = np.sign(lead.to_numpy())
    return [(lead.index[i], lead.index[i + 1]) for i in range(len(lead) - 1) if signs[i] != signs[i + 1]]


def loses_less(found: Attacked, table: pd.DataFrame, method: str) -> Answer:
    """Figure 3: points of accuracy lost, of those at epsilon 0, by the capsules less by the convolutional network; mean
    over epsilons.

    It holds where that is fewer by more than two standard errors, and so much more is left: a network near chance
    has nothing to lose.
    """
    both = _both(table, "general", method)
    lost = [Measured.of((each.loc[0.0] - _above_0(each)).mean()) for each in both]
    left = [Measured.of(_above_0(each).mean()) for each in both]
    clean = [float(each.mean(axis=1).loc[0.0]) for each in both]
    last = [each.iloc[-1].mean() for each in both]
    crossed = [f"{low:g} and {high:g}" for low, high in _crossings(*both)]
    error, error_lost = found.error(left), found.error_lost(clean, left, lost)
    notes = [
        f"lost, mean over epsilons: capsules {lost[0].mean:.1f} points, CNN {lost[1].mean:.1f}; "
        f"accuracy before: {clean[0]:.1f} % and {clean[1]:.1f} %",
        f"curves cross between epsilons {', between '.join(crossed)}" if crossed else "curves do not cross",
        f"at epsilon {both[0].index[-1]:g} {'capsules are' if last[0] > last[1] else 'the CNN is'} the more accurate: "
        f"capsules {last[0]:.1f} %, CNN {last[1]:.1f} %",
        f"left, mean over epsilons: capsules {left[0].mean:.1f} %, CNN {left[1].mean:.1f} %; standard error of the "
        f"difference {error:.1f} points",
        _through_own_loss(table, method),
    ]
    none = found.numbers.number("gradient", "capsules", "without", "mean")
    if none:
        notes.append(f"the capsules' own loss has no gradient at {100 * none:.0f} % of the images")
    less = lost[0].mean < lost[1].mean - SIGNIFICANT_SES * error_lost
    more = left[0].mean > left[1].mean + SIGNIFICANT_SES * error
    return _difference(lost, error_lost), less and more, notes


def _through_own_loss(table: pd.DataFrame, method: str) -> str:
    """What the document's attacks, through a network's own loss alone, leave."""
    left = [_above_0(each) for each in _both(table, "general", method, "own_loss")]
    kept = [each.mean().mean() for each in left]
    least = [each.mean(axis=1).min() for each in left]
    return (
        "attacked through their own losses alone, as in the document: "
        f"capsules {kept[0]:.1f} %, at the worst epsilon {least[0]:.1f} %; CNN {kept[1]:.1f} and {least[1]:.1f} %"
    )


def targets_are_missed(found: Attacked, table: pd.DataFrame) -> Answer:
    """Figure 3: success rate of targeted attacks, mean over epsilons and methods, on capsules less that on the CNN.

    It holds where it is lower by either method, by more than two standard errors.
    """
    lower, notes = [], []
    rates: list[list[Measured]] = []
    for method in METHODS:
        rates.append([Measured.of(_above_0(each).mean()) for each in _both(table, "targeted", method)])
        ours, theirs = rates[-1]
        lower.append(ours.mean < theirs.mean - SIGNIFICANT_SES * found.error(rates[-1]))
        notes.append(f"{method}: {ours.mean:.1f} % on capsules, {theirs.mean:.1f} % on the CNN")
    mean = [
        # Of the same replicas: the spread of the mean is at most the mean of both.
        Measured((first.mean + second.mean) / 2, (first.sd + second.sd) / 2, min(first.n, second.n))
        for first, second in zip(*rates, strict=True)
    ]
    return _difference(mean, found.error(mean)), all(lower), notes


def stays_above_chance(found: Attacked, table: pd.DataFrame) -> Answer:
    """Section 6: the lowest accuracy of the capsules (percent) under general attacks, over epsilons and methods.

    It holds where that is not below chance by more than two standard errors (binomial, of the images attacked), if
    these are few enough points to tell.
    """
    lowest: list[Measured] = []
    notes = []
    for method in METHODS:
        both = map(_above_0, _both(table, "general", method))
        rows = [each.iloc[int(each.mean(axis=1).to_numpy().argmin())] for each in both]
        words = [
            f"{name} {row.mean():.1f} % at epsilon {row.name:g}"
            for name, row in zip(NETWORKS.values(), rows, strict=True)
        ]
        lowest.append(Measured.of(rows[0]))
        notes += [f"lowest under {method}: {', '.join(words)}", _through_own_loss(table, method)]
    chance = found.chance
    allowed = SIGNIFICANT_SES * found.noise(chance)
    notes.append(f"chance is {chance:.0f} %, two standard errors of {found.images:,} images {allowed:.1f} points")
    ours = min(lowest, key=lambda accuracy: accuracy.mean)
    return ours, ours.mean >= chance - allowed and allowed <= LARGEST_UNDETECTED, [*notes, *_too_few(allowed)]


def _too_few(allowed: float) -> list[str]:
    told = allowed <= LARGEST_UNDETECTED
    return [] if told else [f"too few images to tell: that may be {LARGEST_UNDETECTED:g} points at most"]


def transfer_hurts_both(found: Attacked, table: pd.DataFrame) -> Answer:
    """Section 6: accuracy under black-box attacks, mean over epsilons and methods, of the capsules less the CNN's.

    It holds where that is within two standard errors, if these are few enough points to tell, and so is the difference
    of what is lost of the accuracy before: a network that was worse before is hurt less where both keep as much.
    """
    curves = {method: _both(table, "black-box", method) for method in METHODS}
    means = {method: [_above_0(each).mean() for each in both] for method, both in curves.items()}
    notes = [f"{method}: capsules {a.mean():.1f} %, other CNNs {b.mean():.1f} %" for method, (a, b) in means.items()]
    before = [each.loc[[0.0]].mean() for each in curves[METHODS[0]]]
    after: list[pd.Series[float]] = [pd.concat(each, axis=1).mean(axis=1) for each in zip(*means.values(), strict=True)]
    left = [Measured.of(each) for each in after]
    lost = [Measured.of(first - then) for first, then in zip(before, after, strict=True)]
    clean = [float(each.mean()) for each in before]
    errors = found.error(left), found.error_lost(clean, left, lost)
    notes += [
        f"on the images as they are: {clean[0]:.1f} % and {clean[1]:.1f} %",
        f"lost: capsules {lost[0].mean:.1f} points, other CNNs {lost[1].mean:.1f}",
        f"standard error of the difference {errors[0]:.1f} points, of what is lost {errors[1]:.1f} "
        f"({found.images:,} images)",
    ]
    differences = [_difference(pair, error) for pair, error in zip((left, lost), errors, strict=True)]
    alike = all(abs(each.mean) <= SIGNIFICANT_SES * each.se for each in differences)
    allowed = SIGNIFICANT_SES * errors[0]
    return differences[0], alike and allowed <= LARGEST_UNDETECTED, [*notes, *_too_few(allowed)]


def gradients_are_there(found: Attacked, _: pd.DataFrame) -> Answer:
    """Section 6: share of the loss's derivatives by pixels that are exactly 0, in capsules (percent).

    The loss is the network's own: the spread loss is exactly 0 where its margin is met.
    """
    numbers = found.numbers
    capsules, cnn = (numbers.needed("gradient", network, "zeros") for network in NETWORKS)
    notes = [f"exactly 0: {100 * capsules.mean:.2f} % in capsules, {100 * cnn.mean:.2f} % in the CNN"]
    ours, theirs = (numbers.number("gradient", network, "median", "mean") for network in NETWORKS)
    if ours is not None and theirs is not None:
        ratio = f", {theirs / ours:.3g} times as large" if ours > 0 else ""
        notes.append(f"median size of the others: {ours:.2g} in capsules, {theirs:.2g} in the CNN{ratio}")
    logits = [numbers.measured("cross_entropy_gradient", network, "zeros") for network in NETWORKS]
    if logits[0] and logits[1]:
        shares = f"{100 * logits[0].mean:.2f} % in capsules, {100 * logits[1].mean:.2f} % in the CNN"
        notes.append(f"of the cross-entropy of the logits: {shares}")
    return capsules.scaled(100), capsules.mean <= cnn.mean, notes


MEASURES: dict[str, Measure] = {
    "004.fig3.fgsm": _measure(partial(loses_less, method="FGSM")),
    "004.fig3.bim": _measure(partial(loses_less, method="BIM")),
    "004.fig3.target": _measure(targets_are_missed),
    "004.floor": _measure(stays_above_chance),
    "004.blackbox": _measure(transfer_hurts_both),
    "004.gradzeros": _measure(gradients_are_there),
}
"""How each claim about attacks is answered."""


# ---- the figures


def draw(results: Results, written: Written) -> Iterator[Drawing]:
    """For each study the curves of Figure 3, and the images that attacks made."""
    for item, numbers in results.executed("attack"):
        study, label = Attacked(item, numbers), dataset_label(numbers.records)
        table = written.table(results, "attack", item, COLUMNS)
        if table is not None:
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
                partial(curves, table, study.chance),
            )
        arrays = written.examples(results, "attack", item, ())
        if arrays is None:
            continue
        yield Drawing(
            f"matrix-attacked-{item}",
            "png",
            f"Images that FGSM made, {item}",
            "Test images before and after attacks on each network, away from the correct class: is a change by epsilon "
            f"visible, and does it have a shape? (Figure B.3 of document 004; {label}).",
            "A grid of images, a row for each network and epsilon.",
            numbers.records,
            partial(attacked, arrays),
        )


@in_house_style
def curves(table: pd.DataFrame, chance: float) -> Figure:
    """Figure 3: accuracy under general attacks, success of targeted ones, accuracy under black-box ones (percent).

    Args:
        table: columns network, replica, method, kind, epsilon, value (shares).
        chance: percent.
    """
    kinds = [kind for kind in KINDS if (table["kind"] == kind).any()]
    smallest, largest = table.loc[table["epsilon"] > 0, "epsilon"].min(), table["epsilon"].max()
    figure, axes = panels(len(kinds), 2.6, sharex=True)
    for axis, kind in zip(axes, kinds, strict=True):
        title, words = KINDS[kind]
        for network, (colour, marker) in LOOKS.items():
            for method, dashes in zip(METHODS, ("-", "--"), strict=True):
                rows = table[(table["kind"] == kind) & (table["network"] == network) & (table["method"] == method)]
                values = 100 * rows.groupby("epsilon")["value"].agg(["mean", "std"])
                axis.plot(
                    values.index, values["mean"], color=colour, marker=marker, linestyle=dashes, markersize=3.5,
                    label=f"{NETWORKS[network]}, {method}",
                )  # fmt: skip
                if values["std"].notna().all():
                    low, high = values["mean"] - values["std"], values["mean"] + values["std"]
                    axis.fill_between(values.index, low, high, color=colour, alpha=0.15, linewidth=0)
        if kind != "targeted":
            axis.axhline(chance, color=FAINT, linestyle=":", linewidth=1, label="chance")
        axis.set_title(title)
        axis.set_xlabel("epsilon")
        if largest > _MANY_TIMES * smallest:
            axis.set_xscale("symlog", linthresh=smallest, linscale=0.5)
            decades = [float(f"1e{power}") for power in range(-6, 2)]
            ticks = [0.0, *(tick for tick in decades if smallest <= tick <= largest)]
            axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axis.minorticks_off()
        axis.set_ylabel(words)
        axis.set_ylim(-2, 102)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, handlelength=2.8)
    return figure


def attacked(arrays: Mapping[str, np.ndarray]) -> Figure:
    """Figure B.3: images as they are, then a row for each network and epsilon (of a stereo pair the first image).

    Args:
        arrays: `[k, C, s, s]` in [0, 1], by "<network>-<epsilon>".
    """
    keys = [(float(name.partition("-")[2]), name.partition("-")[0], name) for name in arrays]
    changed = sorted(key for key in keys if key[0] > 0)
    rows = [("as they are", arrays[name]) for epsilon, _, name in keys if epsilon == 0][:1]
    rows += [(f"{NETWORKS[network]},\nepsilon {epsilon:g}", arrays[name]) for epsilon, network, name in changed]
    return image_rows([(words, images[:, 0]) for words, images in rows])
