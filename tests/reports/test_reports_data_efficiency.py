"""Errors over the number of training images, and the verdict on document 003's claim about parameters and data."""

from __future__ import annotations

from typing import Any

import pytest
from made_up import Writer, check_drawn, judged, recorded, spread
from small import run_on

from pipeline.drawing.drawings import Written
from pipeline.params import parse_params
from pipeline.report import data_efficiency
from pipeline.results.reading import Results

IMAGES = {"0.1": 80, "1": 800}
ERRORS = {
    "matrix-toys": ("matrix_capsules", 60_000, {"0.1": {"itself": 0.30}, "1": {"itself": 0.10}}),
    "cnn-toys": ("cnn", 400_000, {"0.1": {"itself": 0.40}, "1": {"itself": 0.20}}),
    "vae-digits": ("vae", 200_000, {"0.1": {"mu_sigma": 0.2}, "1": {"mu_sigma": 0.1}}),
}
"""Variant, parameters and errors of each run, so that the claim holds."""


def results(writer: Writer, values: dict[str, Any], capsules: tuple[int, dict[str, float]] | None = None) -> Results:
    """Made-up results; `capsules` replaces parameters and errors of matrix capsules."""
    toys = values["datasets"]["digits"] | {"source": "toys", "canvas": 48}
    runs = {name: run_on(variant, dataset := name.split("-")[-1], dataset) for name, (variant, _, _) in ERRORS.items()}
    params = values | {
        "sources": ["digits", "toys"],
        "datasets": values["datasets"] | {"toys": toys},
        "runs": values["runs"] | runs,
        "data_efficiency": {name: {"run": name, "shares": [0.1, 1.0], "epochs": 4, "replicas": 2} for name in ERRORS},
        "evidence": {"comparison": {"data_efficiency": {"capsules": "matrix-toys", "cnn": "cnn-toys"}}},
    }
    for name, (_, parameters, errors) in ERRORS.items():
        label = "toys (stand-in)" if name.endswith("toys") else "digits (scikit-learn)"
        if capsules and name == "matrix-toys":
            parameters, errors = capsules[0], {share: {"itself": error} for share, error in capsules[1].items()}
        shares = {share: {how: spread(error, 0.01) for how, error in of.items()} for share, of in errors.items()}
        images = {share: IMAGES[share] for share in shares}
        writer.numbers("data_efficiency", name, {"share": shares, "images": images}, dataset=label)
        writer.numbers("train", name, {"parameters": {"generative": 0, "total": parameters}}, dataset=label)
    return recorded(writer.results, parse_params(params))


def verdict(found: Results) -> tuple[str, Any]:
    row = judged(found, "003")["003.params"]
    return row["verdict"], row


def test_the_claim_holds_where_fewer_parameters_have_lower_errors_on_every_share(
    writer: Writer, values: dict[str, Any]
) -> None:
    told, row = verdict(results(writer, values))
    assert told == "holds"
    assert row["ours"]["value"] == pytest.approx(0.75), "where capsules are worst"
    assert "not the paper's data" in row["dataset"]
    assert "matrix-toys has 60,000 parameters, cnn-toys 400,000" in row["notes"]


@pytest.mark.parametrize(
    ("capsules", "told"),
    [
        ((60_000, {"0.1": 0.41, "1": 0.1}), "fails"),
        ((60_000, {"0.1": 0.3, "1": 0.17}), "fails"),
        ((400_000, {"0.1": 0.3, "1": 0.1}), "fails"),
        ((60_000, {"0.1": 0.3}), "not run"),
    ],
    ids=["worse on a share", "better by no more than chance", "as many parameters", "not measured on all shares"],
)
def test_the_claim_fails_where_one_of_both_does(
    writer: Writer, values: dict[str, Any], capsules: tuple[int, dict[str, float]], told: str
) -> None:
    assert verdict(results(writer, values, capsules))[0] == told


def test_the_figure_shows_every_run(writer: Writer, values: dict[str, Any]) -> None:
    found = results(writer, values)
    (drawing,) = data_efficiency.draw(found, Written())
    check_drawn([drawing])
    toys, _ = drawing.figure().axes
    (cnn,) = (bar for bar in toys.containers if bar.get_label() == "cnn-toys")
    assert list(cnn[0].get_xdata()) == [80, 800]
    assert list(cnn[0].get_ydata()) == [40, 20]
    (low, high), _ = cnn[2][0].get_segments()
    assert (low[1], high[1]) == (pytest.approx(39), pytest.approx(41)), "one sd, in percent"
