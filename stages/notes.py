"""What MLflow shows of runs at first sight: descriptions in Markdown, and the metrics of a reproduction."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pipeline.studies import file_of

NOTE = "mlflow.note.content"
"""The tag of a run or an experiment that MLflow shows as its description."""

MAX_NUMBERS = 5
"""Of a run's description."""
COUNTS, COUNTS_OF_PAPERS, VALUES = "claims", "claims_at_papers_settings", "claim_values"
"""Prefixes of a reproduction's metrics: counts of verdicts, those at the papers' settings, our number of each claim."""

VIEWS = {
    "reproductions": {
        "searchFilter": "tags.stage = '(all)'",
        "orderByKey": "attributes.start_time",
        "orderByAsc": False,
        "selectedColumns": [
            "attributes.`Duration`",
            *(f"metrics.`{COUNTS}/{verdict}`" for verdict in ("run", "holds", "fails", "within", "better", "worse")),
            "tags.`commit`",
            "tags.`dirty`",
        ],
    },
    "trainings": {
        "searchFilter": "tags.stage = 'train'",
        "orderByKey": "tags.`mlflow.runName`",
        "orderByAsc": True,
        "selectedColumns": [
            "attributes.`Duration`",
            *(f"metrics.`validation.{name}`" for name in ("bound", "loss", "accuracy", "pixel_error")),
            "metrics.`images_per_second`",
            "tags.`warning`",
            "tags.`commit`",
            "tags.`device`",
        ],
    },
    "evaluations": {
        "searchFilter": "tags.stage = 'evaluate'",
        "orderByKey": "tags.`mlflow.runName`",
        "orderByAsc": True,
        "selectedColumns": [
            "attributes.`Duration`",
            *(f"metrics.`test.{name}`" for name in ("accuracy", "centre", "bound", "pixel_error")),
            "tags.`commit`",
            "tags.`device`",
        ],
    },
}
"""Views of MLflow's table of runs, in the form in which its page shares one; all else is as the page has it by default.

Sorted by name, the same training of several reproductions is below each other. Sorted by time, MLflow hides nested runs
below their parents.
"""


@cache
def purpose(name: str) -> str:
    """The first line of the docstring of a stage or a study: what it does."""
    file = file_of(name) or Path(__file__).with_name(f"{name}.py")
    source = file.read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or name).partition("\n")[0]


def run_note(name: str, label: str, commit: str, dirty: bool, numbers: Mapping[str, float]) -> str:
    """The description of one run: its first numbers, what it does, and how to repeat it.

    Args:
        name: of the stage.
        label: as DVC writes it: `train@vae-digits`.
        numbers: the headline numbers by dotted name; empty while the run goes on.
    """
    first = ", ".join(f"{key} **{value:.4g}**" for key, value in [*numbers.items()][:MAX_NUMBERS])
    # MLflow folds a description after about three lines.
    parts = [*([f"{first}."] if first else []), purpose(name), f"Repeat commit {_committed(commit, dirty)}:"]
    return "\n\n".join([*parts, _code([f"git checkout {commit}", f"dvc repro -f -s {label}"])])


def reproduction_note(
    profile: str,
    commit: str,
    dirty: bool,
    counts: Mapping[Any, Mapping[Any, int]],
    documents: Sequence[tuple[str, str, int, int]],
) -> str:
    """The description of a whole reproduction.

    Args:
        counts: how many claims have each verdict, by kind of setting.
        documents: number and title of each document, how many of its claims were run, and how many it has.
    """
    verdicts = list(next(iter(counts.values())))
    totals = {verdict: sum(each[verdict] for each in counts.values()) for verdict in verdicts}
    ran, total = sum(run for *_, run, _ in documents), sum(total for *_, total in documents)
    answers = ", ".join(f"{count} {verdict}" for verdict, count in totals.items() if verdict != "not run")
    return "\n\n".join(
        [
            f"**{ran} of {total} claims run: {answers}.** Profile `{profile}`, commit {_committed(commit, dirty)}. "
            "Its page is `index.html` among the artifacts; the figures lie beside it.",
            _table(
                ("claims", *verdicts), [(kind or "not run", *map(str, each.values())) for kind, each in counts.items()]
            ),
            _table(("document", "claims run"), [(title, f"{run} of {total}") for _, title, run, total in documents]),
            "### Repeat it",
            _code([f"git checkout {commit}", f"python -m pipeline profile switch {profile}", "make repro"]),
            "### Compare it",
            _code([f"python -m pipeline compare {commit[:10]} .", "dvc metrics diff", "dvc plots diff"]),
        ]
    )


def reproduction_metrics(
    rows: Sequence[Mapping[str, Any]], counts: Mapping[Any, Mapping[Any, int]]
) -> dict[str, float]:
    """A reproduction's metrics: how many claims have each verdict, in total and at the papers' settings; our numbers.

    Args:
        rows: of the scorecard.
        counts: `count_verdicts` of the rows, the papers' settings first.
    """
    papers, *_ = counts.values()
    totals = {verdict: sum(each[verdict] for each in counts.values()) for verdict in papers}
    counted = {
        f"{prefix}/{verdict.replace(' ', '_')}": float(count)
        for prefix, verdicts in ((COUNTS, totals), (COUNTS_OF_PAPERS, papers))
        for verdict, count in verdicts.items()
        if prefix == COUNTS or verdict != "not run"
    }
    ran = sum(count for verdict, count in totals.items() if verdict != "not run")
    values = {f"{VALUES}/{row['id']}": float(row["ours"]["value"]) for row in rows if row["ours"]}
    return {f"{COUNTS}/run": float(ran), **counted, **values}


def experiment_tags(profile: str) -> dict[str, str]:
    """The description of a profile's experiment, and its views: tables with the columns that matter."""
    note = (
        f"Every reproduction of the profile `{profile}` is a run with one nested run for each executed stage. "
        "The views `reproductions`, `trainings` and `evaluations` have the columns that matter: open them by the links "
        "that `make ui` prints, or add `?viewStateShareKey=trainings` to the address of the list of runs."
    )
    views = {f"mlflow.sharedViewState.{name}": json.dumps(view) for name, view in VIEWS.items()}
    return {NOTE: note, "mlflow.experimentKind": "custom_model_development", **views}


def _committed(commit: str, dirty: bool) -> str:
    return f"`{commit[:10]}`{' with uncommitted changes' if dirty else ''}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _code(lines: Sequence[str]) -> str:
    return "\n".join(["```", *lines, "```"])
