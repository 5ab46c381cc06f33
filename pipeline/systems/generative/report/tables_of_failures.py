"""Tables of the failure analysis (document 000, section 5.4) and of the sensitivity study (appendix B)."""

from __future__ import annotations

from pipeline.drawing.table import Row, Table, measured_table
from pipeline.results.reading import Results
from pipeline.systems.generative.report.claims_of_failures import deviations
from pipeline.systems.generative.report.comparison import evaluated
from pipeline.systems.generative.report.figures_of_failures import HYPERPARAMETERS, sensitivities
from pipeline.systems.generative.report.runs import sweeps, unswept


def equivariance(results: Results) -> list[Table]:
    """Figure 5 in numbers."""
    heads = {
        "deviation": ("deviation", 3),
        "unfollowed": ("if poses did not rotate", 3),
        "missed": ("share missed", 2),
        "centre": ("deviation of the centre", 3),
        "centre_unfollowed": ("if centres did not rotate", 3),
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
        "Difference between the poses found in an image rotated by the angle (degrees) and the rotated poses of the "
        "upright image: presence-weighted root mean square over the six numbers of a pose, or the two of its centre, "
        "in half widths of the image. For comparison, the same for poses that do not rotate. Switched: share of the "
        "capsules present in either image that are absent in the other."
    )
    return measured_table("equivariance", "Poses in rotated images", caption, ["run", "layer", "angle"], heads, rows)


def templates(results: Results) -> list[Table]:
    """Figure 6 in numbers."""
    heads = {
        "drawn": ("templates in use", 1),
        "pairs": ("pairs alike (%)", 1),
        "copied": ("with a copy (%)", 1),
        "faded_strokes_pairs": ("strokes: pairs alike (%)", 1),
        "faded_strokes_pairs_sd": ("sd over draws", 1),
        "faded_strokes_copied": ("strokes: with a copy (%)", 1),
    }
    rows: list[Row] = []
    for run, numbers in evaluated(results).items():
        if not numbers.names("templates"):
            continue
        found = {column: numbers.measured("templates", column) for column in heads}
        percent = {name: value.scaled(100) if value and name != "drawn" else value for name, value in found.items()}
        rows.append(([run, float(numbers.settings.failures.threshold)], percent, numbers))
    caption = (
        "Pairs of templates that are alike: their correlation under the best affine map is at least the given one. "
        "Templates that draw less than a hundredth of the ink are left out. For comparison, the same for equally many "
        "windows on strokes of the digits, of the size of a drawn template and faded at the edges as the templates are "
        "(mean over several random samples): strokes are alike too, and more so in coarser digits."
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
            rows.append(([sweep.run, angle, angle], measured, numbers))
        for angle in sweep.measured("consistency"):
            if (found := unswept(results, sweep, angle)) is not None:
                numbers, consistency = found
                overlap = numbers.measured("part_use", f"{angle:g}", "overlap")
                measured = {"consistency": consistency, "overlap": overlap, "pairs": None, "copied": None}
                own = float(numbers.run(sweep.run).augmentation.rotation)
                rows.append(([sweep.run, own, angle], measured, numbers))
    caption = (
        "Images rotated within an angle (degrees), in training and in the test: how often the same part draws a pixel "
        "in two digits of a class, corrected for chance (Scott's pi: 1 always, 0 as often as by chance); how well the "
        "drawn ink overlaps the digit's (intersection over union; a model that draws the same for every digit is "
        "consistent but overlaps little); and how many templates are affine copies of each other. Part use is less "
        "consistent on wider rotations for any training if parts stay at their places in the image: compare trainings "
        "on the same test images."
    )
    head = ["run", "trained within", "tested within"]
    return measured_table("part-use", "Consistency of part use over ranges of rotation", caption, head, heads, rows)


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
        "The run trained for the given number of epochs with one hyperparameter changed and its schedule shortened in "
        "proportion: accuracy of the probes on clean images, squared pixel error summed over an image. The initial sd "
        "of a part's pose and the sd of absent parts are scaled with the least sd, the final temperature with the "
        "initial one. Bounds are not shown: at different sds and temperatures they belong to different densities."
    )
    keys = ["run", "epochs", "hyperparameter", "value", "the run's own"]
    return measured_table("sensitivity", "Sensitivity to hyperparameters", caption, keys, heads, rows)


def build(results: Results) -> list[Table]:
    """Every table of these. Raises `ResultError` if a result file is corrupt."""
    return [table for builder in (equivariance, templates, part_use, sensitivity) for table in builder(results)]
