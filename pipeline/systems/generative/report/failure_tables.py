"""Tables of the failure analysis (document 000, section 5.4) and of the sensitivity study (appendix B)."""

from __future__ import annotations

from pipeline.drawing.table import Row, Table, measured_table
from pipeline.results.reading import Results
from pipeline.systems.generative.report.comparison import evaluated
from pipeline.systems.generative.report.failure_claims import deviations
from pipeline.systems.generative.report.failure_figures import HYPERPARAMETERS, sensitivities
from pipeline.systems.generative.report.runs import sweeps


def equivariance(results: Results) -> list[Table]:
    """Figure 5 in numbers."""
    heads = {
        "deviation": ("deviation", 3),
        "unfollowed": ("had no pose followed", 3),
        "missed": ("share missed", 2),
        "centre": ("deviation of the centre", 3),
        "centre_unfollowed": ("had no centre followed", 3),
        "switched": ("presences switched", 3),
    }
    rows: list[Row] = []
    for run, numbers in evaluated(results).items():
        for layer in numbers.names("equivariance"):
            columns = {column: deviations(numbers, layer, column) for column in heads}
            rows += [
                ([run, layer, angle], {each: columns[each].get(angle) for each in heads}, numbers)
                for angle in columns["deviation"]
            ]
    caption = (
        "Poses found in images turned by the angle (degrees), against the turned poses: presence-weighted root mean "
        "squares over the six numbers of a pose, or the two of its centre, in half widths of the image; beside them "
        "what they would be had no pose followed. Switched: share of the capsules present in either image that are "
        "absent in the other."
    )
    return measured_table("equivariance", "Poses in turned images", caption, ["run", "layer", "angle"], heads, rows)


def templates(results: Results) -> list[Table]:
    """Figure 6 in numbers."""
    heads = {
        "drawn": ("templates in use", 1),
        "pairs": ("pairs alike (%)", 1),
        "copied": ("with a copy (%)", 1),
        "strokes_pairs": ("strokes: pairs alike (%)", 1),
        "strokes_pairs_sd": ("sd over draws", 1),
        "strokes_copied": ("strokes: with a copy (%)", 1),
    }
    rows: list[Row] = []
    for run, numbers in evaluated(results).items():
        if not numbers.names("templates"):
            continue
        found = {column: numbers.measured("templates", column) for column in heads}
        percent = {name: value.scaled(100) if value and name != "drawn" else value for name, value in found.items()}
        rows.append(([run, float(numbers.settings.failures.threshold)], percent, numbers))
    caption = (
        "Pairs of templates alike under the best affine map: a correlation of at least the one that is given; "
        "templates that draw less than a hundredth of the ink are left out. Beside them the same of as many windows on "
        "strokes of the digits, as large as a template is drawn, in the mean over several draws: strokes are alike "
        "too, and the more so the coarser the digits."
    )
    title = "Templates that are affine copies of each other"
    return measured_table("templates", title, caption, ["run", "correlation"], heads, rows)


def part_use(results: Results) -> list[Table]:
    """Figure 7 in numbers."""
    heads = {
        "consistency": ("consistency of part use", 2),
        "overlap": ("overlap with the digit", 2),
        "pairs": ("template pairs alike (%)", 1),
        "copied": ("templates with a copy (%)", 1),
    }
    rows: list[Row] = []
    for sweep in sweeps(results):
        for angle, consistency in sweep.measured("consistency").items():
            numbers = sweep.items[angle]
            pairs, copied = (numbers.measured("duplicates", name) for name in ("pairs", "copied"))
            measured = {
                "consistency": consistency,
                "overlap": numbers.measured("overlap"),
                "pairs": pairs.scaled(100) if pairs else None,
                "copied": copied.scaled(100) if copied else None,
            }
            rows.append(([sweep.run, angle], measured, numbers))
    caption = (
        "After training on images turned within the angle (degrees): how often two digits of a class give a pixel to "
        "the same part, beyond chance (Scott's pi: 1 always, 0 as often as by chance); how well the ink drawn covers "
        "the digit's (intersection over union: a model that draws the same for every digit is consistent, and "
        "covers little); and how many templates are affine copies of each other."
    )
    return measured_table(
        "part-use", "Consistency of part use over training ranges", caption, ["run", "angle"], heads, rows
    )


def sensitivity(results: Results) -> list[Table]:
    """Appendix B's three hyperparameters."""
    heads = {"t0": ("t0 (%)", 1), "t0_A0": ("t0 and A0 (%)", 1), "pixel_error": ("pixel error", 1)}
    rows: list[Row] = []
    for name, numbers in sensitivities(results):
        study, own = numbers.settings.sensitivity, numbers.number("own")
        for value in sorted(numbers.names("value"), key=float):
            found = {column: numbers.measured("value", value, column) for column in heads}
            percent = {each: got.scaled(100) if got and each != "pixel_error" else got for each, got in found.items()}
            words, mark = HYPERPARAMETERS.get(name, name), "yes" * (float(value) == own)
            rows.append(([study.run, study.epochs, words, float(value), mark], percent, numbers))
    caption = (
        "The run trained for so many epochs with one hyperparameter changed, its schedule shortened alike: accuracy of "
        "the probes on clean images, pixel error squared and summed per image. The sd that a part's pose starts from "
        "moves along with its least sd. Bounds are left out: at different sds and temperatures they bound different "
        "densities."
    )
    keys = ["run", "epochs", "hyperparameter", "value", "the run's own"]
    return measured_table("sensitivity", "Sensitivity to hyperparameters", caption, keys, heads, rows)


BUILDERS = (equivariance, templates, part_use, sensitivity)
"""In the page's order."""
