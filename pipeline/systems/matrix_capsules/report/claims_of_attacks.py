"""How the claims of document 004 about adversarial images are answered (section 6, Figure 3).

Means over epsilons are of all above 0, each counted alike, whatever the grid of a study is. At every epsilon the same
images are attacked, so that such a mean is as noisy as a number of one epsilon, of as many images.

Both networks see the same images, too, and most often fail on the same ones. Tables hold no single predictions, so that
standard errors are those of different images, which are then too large rather than too small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pipeline.results.documents import remarks
from pipeline.results.findings import Finding, Measure
from pipeline.results.measured import SIGNIFICANT_SES, Measured
from pipeline.results.provenance import dataset_label
from pipeline.results.reading import Results, with_training
from pipeline.systems.matrix_capsules.report.runs import Compared, attack_study, attacked_images

COLUMNS = ("network", "replica", "method", "kind", "epsilon", "value", "own_loss")
METHODS = ("FGSM", "BIM")
LARGEST_UNDETECTED = 5.0
"""Points: where a difference of so many would not be significant, there are too few images to say that there is none.
"""


@dataclass(frozen=True)
class Attacked:
    """An executed study of attacks.

    Attributes:
        table: columns as `COLUMNS`, values as shares.
    """

    study: Compared
    table: pd.DataFrame

    def curves(self, network: str, kind: str, method: str, column: str = "value") -> pd.DataFrame:
        """Percent, `[epsilons, replicas]`, epsilons rising; empty where there are none.

        Args:
            column: `value`, or `own_loss` for attacks through a network's own loss alone, as the document's.
        """
        chosen = self.table[(self.table["network"] == network) & (self.table["kind"] == kind)]
        chosen = chosen[chosen["method"] == method]
        return 100 * chosen.pivot_table(index="epsilon", columns="replica", values=column).sort_index()

    @property
    def images(self) -> int:
        """Test images attacked."""
        return attacked_images(self.study)

    @property
    def chance(self) -> float:
        """Percent of images that a guess gets right."""
        return 100 / int(self.study.capsules.model.classes)

    def noise(self, percent: float) -> float:
        """Standard error, in points, of a percentage of the images attacked (binomial)."""
        return math.sqrt(max(percent * (100 - percent), 0.0) / self.images)

    def error(self, ours: Measured, theirs: Measured) -> float:
        """Standard error of the difference of two accuracies: a binomial part of the images attacked, taken as if there
        were one epsilon, for all have the same images, and a part from the spread over replicas.
        """
        return math.hypot(*(part for each in (ours, theirs) for part in (self.noise(each.mean), each.se)))

    def error_lost(self, clean: Sequence[float], left: Sequence[Measured], lost: Sequence[Measured]) -> float:
        """Standard error of the difference of the accuracies lost: binomial parts of the accuracies before and after,
        as if their images were different ones, and a part from the spread over replicas.
        """
        of_images = [self.noise(share) for share in (*clean, *(each.mean for each in left))]
        return math.hypot(*of_images, *(each.se for each in lost))


def difference(pair: Sequence[Measured], error: float) -> Measured:
    """Of two numbers, with its standard error: a single seed has no sd, but its images have a known noise."""
    ours, theirs = pair
    return Measured(ours.mean - theirs.mean, error, min(ours.n, theirs.n), standard_error=True)


def over_replicas(values: pd.Series[float]) -> Measured:
    """One number per replica, summed up."""
    return Measured(float(values.mean()), float(values.std()) if len(values) > 1 else 0.0, len(values))


def attacked(results: Results) -> Attacked | None:
    """The study of attacks, if it was executed and has a table."""
    found = results.answering("attack", results.evidence.matrix_capsules.attack)
    table = results.table("attack", found[0], COLUMNS) if found else None
    return Attacked(attack_study(*found), table) if found and table is not None else None


def remarks_on_attack(study: Compared) -> list[str]:
    """In what a study of attacks falls short of the paper's."""
    tested, dataset = attacked_images(study), study.dataset
    found = remarks("matrix_capsules", "iterations_3", study.capsules, dataset, tested=tested)
    of_cnn = remarks("matrix_capsules", "cnn", study.cnn, dataset, tested=tested)
    return found + [f"CNN: {words}" for words in of_cnn if words not in found]


_Check = Callable[[Attacked], tuple[Measured, bool, list[str]] | None]
"""Our number, whether the claim holds, and what else was seen; None where what it needs is not there."""


def _measure(check: _Check) -> Measure:
    def measure(results: Results) -> Finding | None:
        found = attacked(results)
        answer = check(found) if found else None
        if found is None or answer is None:
            return None
        ours, holds, notes = answer
        study = found.study
        records = with_training(results, study.numbers, study.settings.capsules, study.settings.cnn)
        said = remarks_on_attack(study)
        return Finding(ours, dataset_label(records), records, holds=holds, remarks=said, notes=notes)

    return measure


def _both(found: Attacked, kind: str, method: str) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """Curves of the capsules and of the convolutional network, over the same epsilons, some of them above 0."""
    curves = tuple(found.curves(network, kind, method) for network in ("capsules", "cnn"))
    if any(each.empty or each.index.max() <= 0 for each in curves):
        return None
    return curves[0], curves[1]


def attacked_part(curves: pd.DataFrame) -> pd.DataFrame:
    """What is above epsilon 0."""
    return curves[curves.index > 0]


def crossings(capsules: pd.DataFrame, cnn: pd.DataFrame) -> list[tuple[float, float]]:
    """Neighbouring epsilons between which another network becomes the more accurate, by means over replicas."""
    lead = (capsules.mean(axis=1) - cnn.mean(axis=1)).dropna()
    lead = lead[lead != 0]
    signs = np.sign(lead.to_numpy())
    return [(lead.index[i], lead.index[i + 1]) for i in range(len(lead) - 1) if signs[i] != signs[i + 1]]


def loses_less(method: str) -> _Check:
    """Figure 3: points of accuracy lost, of those at epsilon 0, by the capsules less by the convolutional network; mean
    over epsilons.

    It holds where that is fewer by more than two standard errors, and so much more is left: a network near chance
    has nothing to lose.
    """

    def check(found: Attacked) -> tuple[Measured, bool, list[str]] | None:
        both = _both(found, "general", method)
        if both is None or any(0.0 not in each.index for each in both):
            return None
        lost = [over_replicas((each.loc[0.0] - attacked_part(each)).mean()) for each in both]
        clean = [float(each.mean(axis=1).loc[0.0]) for each in both]
        crossed = [f"{low:g} and {high:g}" for low, high in crossings(*both)]
        leads = "capsules are" if both[0].iloc[-1].mean() > both[1].iloc[-1].mean() else "the CNN is"
        notes = [
            f"lost, mean over epsilons: capsules {lost[0].mean:.1f} points, CNN {lost[1].mean:.1f}; "
            f"accuracy before: {clean[0]:.1f} % and {clean[1]:.1f} %",
            f"curves cross between epsilons {', between '.join(crossed)}" if crossed else "curves do not cross",
            f"at epsilon {both[0].index[-1]:g} {leads} the more accurate: "
            f"capsules {both[0].iloc[-1].mean():.1f} %, CNN {both[1].iloc[-1].mean():.1f} %",
        ]
        left = [over_replicas(attacked_part(each).mean()) for each in both]
        error = found.error(*left)
        error_lost = found.error_lost(clean, left, lost)
        notes.append(
            f"left, mean over epsilons: capsules {left[0].mean:.1f} %, CNN {left[1].mean:.1f} %; standard error of the "
            f"difference {error:.1f} points"
        )
        less = lost[0].mean < lost[1].mean - SIGNIFICANT_SES * error_lost
        more = left[0].mean > left[1].mean + SIGNIFICANT_SES * error
        return difference(lost, error_lost), less and more, [*notes, *_through_own_loss(found, method)]

    return check


def _through_own_loss(found: Attacked, method: str) -> list[str]:
    """What the document's attacks, through a network's own loss alone, leave, and why they may leave more."""
    left = [attacked_part(found.curves(network, "general", method, "own_loss")) for network in ("capsules", "cnn")]
    kept = [over_replicas(each.mean()) for each in left]
    least = [each.mean(axis=1).min() for each in left]
    notes = [
        "attacked through their own losses alone, as in the document: "
        f"capsules {kept[0].mean:.1f} %, at the worst epsilon {least[0]:.1f} %; "
        f"CNN {kept[1].mean:.1f} and {least[1]:.1f} %"
    ]
    none = found.study.numbers.number("gradient", "capsules", "without", "mean")
    return [*notes, *([f"the capsules' own loss has no gradient at {100 * none:.0f} % of the images"] if none else [])]


def targets_are_missed(found: Attacked) -> tuple[Measured, bool, list[str]] | None:
    """Figure 3: success rate of targeted attacks, mean over epsilons and methods, on capsules less that on the CNN.

    It holds where it is lower by either method, by more than two standard errors.
    """
    lower, notes = [], []
    rates: list[list[Measured]] = []
    for method in METHODS:
        both = _both(found, "targeted", method)
        if both is None:
            return None
        ours, theirs = (over_replicas(attacked_part(each).mean()) for each in both)
        rates.append([ours, theirs])
        lower.append(ours.mean < theirs.mean - SIGNIFICANT_SES * found.error(ours, theirs))
        notes.append(f"{method}: {ours.mean:.1f} % on capsules, {theirs.mean:.1f} % on the CNN")
    mean = [_halfway(first, second) for first, second in zip(*rates, strict=True)]
    return difference(mean, found.error(*mean)), all(lower), notes


def _halfway(first: Measured, second: Measured) -> Measured:
    """The mean of two numbers of the same replicas; its spread is at most the mean of theirs."""
    return Measured((first.mean + second.mean) / 2, (first.sd + second.sd) / 2, min(first.n, second.n))


def stays_above_chance(found: Attacked) -> tuple[Measured, bool, list[str]] | None:
    """Section 6: the lowest accuracy of the capsules (percent) under general attacks, over epsilons and methods.

    It holds where that is not below chance by more than two standard errors (binomial, of the images attacked), if
    these are few enough points to tell.
    """
    lowest: list[Measured] = []
    notes = []
    for method in METHODS:
        both = _both(found, "general", method)
        if both is None:
            return None
        words = []
        for name, curves in (("capsules", both[0]), ("CNN", both[1])):
            means = attacked_part(curves).mean(axis=1)
            least = means.index[int(means.to_numpy().argmin())]
            accuracy = over_replicas(curves.loc[least])
            words.append(f"{name} {accuracy.mean:.1f} % at epsilon {least:g}")
            if name == "capsules":
                lowest.append(accuracy)
        notes += [f"lowest under {method}: {', '.join(words)}", *_through_own_loss(found, method)[:1]]
    allowed = SIGNIFICANT_SES * found.noise(found.chance)
    notes.append(f"chance is {found.chance:.0f} %, two standard errors of {found.images:,} images {allowed:.1f} points")
    ours = min(lowest, key=lambda accuracy: accuracy.mean)
    return ours, ours.mean >= found.chance - allowed and allowed <= LARGEST_UNDETECTED, [*notes, *_too_few(allowed)]


def _too_few(allowed: float) -> list[str]:
    return (
        [f"too few images to tell: that may be {LARGEST_UNDETECTED:g} points at most"]
        if allowed > LARGEST_UNDETECTED
        else []
    )


def transfer_hurts_both(found: Attacked) -> tuple[Measured, bool, list[str]] | None:
    """Section 6: accuracy under black-box attacks, mean over epsilons and methods, of the capsules less the CNN's.

    It holds where that is within two standard errors, if these are few enough points to tell, and so is the difference
    of what is lost of the accuracy before: a network that was worse before is hurt less where both keep as much.
    """
    curves = {method: both for method in METHODS if (both := _both(found, "black-box", method)) is not None}
    if len(curves) < len(METHODS) or any(0.0 not in each.index for both in curves.values() for each in both):
        return None
    means = {method: [attacked_part(each).mean() for each in both] for method, both in curves.items()}
    notes = [f"{method}: capsules {a.mean():.1f} %, other CNNs {b.mean():.1f} %" for method, (a, b) in means.items()]
    before = [each.loc[[0.0]].mean() for each in curves[METHODS[0]]]
    after: list[pd.Series[float]] = [pd.concat(each, axis=1).mean(axis=1) for each in zip(*means.values(), strict=True)]
    left = [over_replicas(each) for each in after]
    lost = [over_replicas(first - then) for first, then in zip(before, after, strict=True)]
    clean = [float(each.mean()) for each in before]
    errors = found.error(*left), found.error_lost(clean, left, lost)
    notes += [
        f"on the images as they are: {clean[0]:.1f} % and {clean[1]:.1f} %",
        f"lost: capsules {lost[0].mean:.1f} points, other CNNs {lost[1].mean:.1f}",
        f"standard error of the difference {errors[0]:.1f} points, of what is lost {errors[1]:.1f} "
        f"({found.images:,} images)",
    ]
    differences = [difference(pair, error) for pair, error in zip((left, lost), errors, strict=True)]
    alike = all(abs(each.mean) <= SIGNIFICANT_SES * each.se for each in differences)
    allowed = SIGNIFICANT_SES * errors[0]
    return differences[0], alike and allowed <= LARGEST_UNDETECTED, [*notes, *_too_few(allowed)]


def gradients_are_there(found: Attacked) -> tuple[Measured, bool, list[str]] | None:
    """Section 6: share of the loss's derivatives by pixels that are exactly 0, in capsules (percent).

    The loss is the network's own: the spread loss is exactly 0 where its margin is met.
    """
    numbers = found.study.numbers
    zeros = [numbers.measured("gradient", network, "zeros") for network in ("capsules", "cnn")]
    sizes = [numbers.number("gradient", network, "median", "mean") for network in ("capsules", "cnn")]
    capsules, cnn = zeros
    if capsules is None or cnn is None:
        return None
    notes = [f"exactly 0: {100 * capsules.mean:.2f} % in capsules, {100 * cnn.mean:.2f} % in the CNN"]
    if sizes[0] is not None and sizes[1] is not None:
        ratio = f", {sizes[1] / sizes[0]:.3g} times as large" if sizes[0] > 0 else ""
        notes.append(f"median size of the others: {sizes[0]:.2g} in capsules, {sizes[1]:.2g} in the CNN{ratio}")
    logits = [numbers.measured("cross_entropy_gradient", network, "zeros") for network in ("capsules", "cnn")]
    if logits[0] is not None and logits[1] is not None:
        shares = f"{100 * logits[0].mean:.2f} % in capsules, {100 * logits[1].mean:.2f} % in the CNN"
        notes.append(f"of the cross-entropy of the logits: {shares}")
    return capsules.scaled(100), capsules.mean <= cnn.mean, notes


MEASURES: dict[str, Measure] = {
    "004.fig3.fgsm": _measure(loses_less("FGSM")),
    "004.fig3.bim": _measure(loses_less("BIM")),
    "004.fig3.target": _measure(targets_are_missed),
    "004.floor": _measure(stays_above_chance),
    "004.blackbox": _measure(transfer_hurts_both),
    "004.gradzeros": _measure(gradients_are_there),
}
"""How each claim about attacks is answered."""
