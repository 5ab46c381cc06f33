"""Data of the plots that `dvc plots` shows of all runs together: one table for each, with a row for each point.

DVC's own plots are one for each file. These overlay the runs, so that one page shows what a change did to any of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from pipeline.files import write_text
from pipeline.results.reading import Results


def write_plots(folder: Path, results: Results) -> None:
    """Write every table of plots, those without rows too, because DVC expects the files. Raises `FileWriteError`."""
    for name, x, y, tables in (
        ("learning", "epoch", "loss", _validation(results, "loss")),
        ("accuracy", "epoch", "accuracy", _validation(results, "accuracy")),
        ("rotation", "angle", "accuracy", _rotation(results)),
    ):
        columns = ["system", "run", x, y]
        found = list(tables)
        whole = pd.concat(found) if found else pd.DataFrame(columns=columns)
        write_text(folder / f"{name}.csv", whole.to_csv(columns=columns, index=False, float_format="%.5g"))


def _validation(results: Results, metric: str) -> Iterator[pd.DataFrame]:
    """A metric of validation after every epoch, for every run that has it: the mean over seeds that trained so long."""
    for run, numbers in results.executed("train"):
        if metric not in numbers.names("validation"):
            continue
        column = f"validation_{metric}"
        if (table := results.table("train", run, ("replica", "epoch", column))) is not None:
            means = table.groupby("epoch")[column].mean().rename(metric).reset_index()
            yield means.assign(system=numbers.run(run).variant, run=run)


def _rotation(results: Results) -> Iterator[pd.DataFrame]:
    """Accuracy of probes on rotated test images, refitted at each angle, for all features: the mean over seeds."""
    for run, numbers in results.executed("evaluate"):
        columns = ("features", "protocol", "test", "accuracy")
        table = results.table("evaluate", run, columns) if numbers.names("probe") else None
        if table is None:
            continue
        found = table[(table["protocol"] == "refit") & table["test"].str.fullmatch(r"rotated_\d+")]
        angles = found.assign(angle=[int(re.sub(r"\D", "", test)) for test in found["test"]])
        means = angles.groupby(["features", "angle"], as_index=False, sort=False)["accuracy"].mean()
        yield means.assign(system=numbers.run(run).variant, run=[f"{run} {name}" for name in means["features"]])
