"""Sensitivity to hyperparameters (document 000, appendix B)."""

from __future__ import annotations

from pipeline.drawing.table import Row, Table, cells, measured_table
from pipeline.results.reading import Results


def build(results: Results) -> list[Table]:
    """Probes and pixel error by the values of each hyperparameter."""
    names = {"pose_sd_floor": "least sd of a part's pose", "pixel_sd": "sd of a pixel", "temperature": "temperature"}
    heads = {"t0": ("t0 (%)", 1), "t0_A0": ("t0 and A0 (%)", 1), "pixel_error": ("pixel error", 1)}
    rows: list[Row] = []
    for name, words in names.items():
        if numbers := results.numbers("sensitivity", name):
            study, own = numbers.settings.sensitivity, numbers.number("own")
            for value in sorted(numbers.names("value"), key=float):
                keys = [study.run, study.epochs, words, float(value), "yes" * (float(value) == own)]
                rows.append((keys, cells(numbers, heads, "value", value), numbers))
    caption = (
        "The run trained for the given number of epochs with one hyperparameter changed and its schedule shortened in "
        "proportion: accuracy of the probes on clean images, squared pixel error summed over an image. Other sds of "
        "poses are scaled with the least sd, the final temperature with the initial one."
    )
    head = ["run", "epochs", "hyperparameter", "value", "the run's own"]
    return measured_table("sensitivity", "Sensitivity to hyperparameters", caption, head, heads, rows)
