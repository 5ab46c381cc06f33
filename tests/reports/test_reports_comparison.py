"""All systems side by side: one measure of equivariance, errors over the number of training images, and the verdicts on
document 003's claims.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from made_up import Writer, check_drawn, judged, recorded, spread
from small import EQUIVARIANCE, run_on

from pipeline.params import parse_params
from pipeline.report import data_efficiency, equivariance
from pipeline.results import documents
from pipeline.results.reading import Results

LABELS = {"digits": "digits (scikit-learn)", "toys": "toys (stand-in)"}


def made(writer: Writer, values: dict[str, Any], variants: dict[str, str], **sections: Any) -> Results:
    """What was written, with a small run of each variant, on the data that its name ends with, and these sections."""
    toys = values["datasets"]["digits"] | {"source": "toys", "canvas": 48}
    runs = {name: run_on(variant, data := name.split("-")[-1], data) for name, variant in variants.items()}
    params = values | {"sources": ["digits", "toys"], "datasets": values["datasets"] | {"toys": toys}, **sections}
    return recorded(writer.results, parse_params(params | {"runs": values["runs"] | runs}))


def verdict(found: Results, claim: str) -> tuple[str, Any]:
    row = judged(found, "003")[f"003.{claim}"]
    return row["judged"], row


# ---- equivariance

FAMILIES = {"rotation": ["15", "45", "90", "180"], "shift": ["2"], "scale": ["1.2"], "shear": ["0.2"]}
RUNS = {
    "capsules-digits": "generative",
    "scae-digits": "scae",
    "vae-digits": "vae",
    "capsnet-digits": "capsnet",
    "matrix-toys": "matrix_capsules",
    "cnn-toys": "cnn",
    "cnn-digits": "cnn",
}
LAYERS: dict[str, dict[str, dict[str, float]]] = {
    "generative": {
        "parts": {"own": 0.2, "fitted": 0.2, "invariance": 0.9},
        "objects": {"own": 0.25, "fitted": 0.3, "invariance": 1.2},
        "presences": {"invariance": 0.3},
    },
    "scae": {"parts": {"own": 0.3, "fitted": 0.3, "invariance": 0.9}, "objects": {"own": 0.3, "invariance": 0.8}},
    "vae": {"code": {"fitted": 0.5, "invariance": 1.1}},
    "capsnet": {"capsules": {"fitted": 0.35, "invariance": 0.8}, "presences": {"invariance": 0.5}},
    "matrix_capsules": {"poses": {"own": 0.4, "fitted": 0.4, "invariance": 1.0}, "presences": {"invariance": 0.6}},
    "cnn": {"maps": {"own": 0.9, "invariance": 1.1}, "hidden": {"fitted": 0.7, "invariance": 1.0}},
}
"""Errors at which the claim holds."""
CONTROLS = {
    "pixels": {"pixels": {"own": 0.0, "invariance": 1.0}},
    "moments": {"moments": {"own": 0.01, "invariance": 1.0}},
    "quarter turns": {"turns": {"own": 0.0, "invariance": 0.5}},
}


def numbers(layers: dict[str, dict[str, float]], viewpoints: bool = False) -> dict[str, Any]:
    """Made-up results of one item; a layer without measures is constant, its dimensions are not known. Errors of a step
    of the viewpoint are tenfold, those within classes twentyfold.
    """
    found: dict[str, Any] = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
    for subject, of in {"trained": layers, "untrained": layers, **CONTROLS}.items():
        n = 2 if subject == "trained" else 1
        for layer, measures in of.items():
            sd = spread(0.4 if measures else 1e-4, 0.0, n)
            found["layers"][subject][layer] = {"variation": sd, "dimensions": spread(5.0, 0, 1) if measures else None}
            for measure, error in measures.items():
                exact = subject == "quarter turns" and measure == "own"
                families = {"rotation": ["90", "180"]} if exact else FAMILIES
                for suffix, value in (("", error), ("_se", 0.02)):
                    errors, within = (
                        {
                            family: {magnitude: spread(value, 0.0, n) for magnitude in magnitudes}
                            for family, magnitudes in families.items()
                        }
                        for _ in range(2)
                    )
                    found[f"relative_error{suffix}"][subject][layer][measure] = errors
                    found[f"within_classes{suffix}"][subject][layer][measure] = within
                    found[f"derivative{suffix}"][subject][layer][measure] = {
                        family: spread(value / 100, 0.0, n) for family in FAMILIES
                    }
                    if viewpoints and subject == "trained":
                        errors["azimuth"] = {"20": spread(10 * value, 0.0, n)}
                        within["azimuth"] = {"20": spread((10 if suffix else 20) * value, 0.0, n)}
    return found


def results(writer: Writer, values: dict[str, Any], *variants: str, **changes: dict[str, dict[str, float]]) -> Results:
    """Made-up results of the runs of some variants, or of all; `changes` replace layers of a variant. Evidence is every
    capsule run beside the convolutional network on its data.
    """
    runs = {name: variant for name, variant in RUNS.items() if variant in (variants or LAYERS)}
    capsules = [name for name, variant in runs.items() if variant not in ("cnn", "vae")]
    pairs = [
        {"cnn": f"cnn-{data}", "capsules": beside}
        for data in ("digits", "toys")
        if (beside := [name for name in capsules if name.endswith(data)])
    ]
    for name, variant in runs.items():
        data = name.split("-")[-1]
        layers = LAYERS[variant] | changes.get(variant, {})
        writer.numbers("equivariance", name, numbers(layers, viewpoints=data == "toys"), dataset=LABELS[data])
    measured = {name: {"run": name, **EQUIVARIANCE} for name in runs}
    evidence = {"comparison": {"equivariance": pairs}}
    return made(writer, values, runs, equivariance=measured, evidence=evidence)


def test_the_claim_holds_where_all_poses_follow_better_than_the_networks_features(
    writer: Writer, values: dict[str, Any]
) -> None:
    told, row = verdict(results(writer, values), "equivariance")
    assert told == "holds"
    assert row["ours"]["value"] == pytest.approx(0.4 / 0.7), "the worst poses against the best features"
    assert row["ours"]["n"] == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"generative": {"objects": {"own": 0.8, "fitted": 0.1, "invariance": 1.2}}},
        {"generative": {"objects": {"own": 0.66, "fitted": 0.1, "invariance": 1.2}}},
        {"generative": {"objects": {"own": 0.3, "fitted": 0.1, "invariance": 0.2}}},
        {"cnn": {"maps": {"own": 0.3, "invariance": 1.1}}},
    ],
    ids=["worse", "not clearly better", "stay rather than follow", "maps are as good"],
)
def test_one_layer_of_poses_that_is_no_better_refutes_it(
    writer: Writer, values: dict[str, Any], changes: dict[str, Any]
) -> None:
    assert verdict(results(writer, values, **changes), "equivariance")[0] == "fails"


def test_only_data_on_which_it_fails_explain_that_it_fails(
    writer: Writer, values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(documents.COPIES, "toys", "a copy")
    assert "a copy" in "; ".join(verdict(results(writer, values), "equivariance")[1]["remarks"])
    worse = {"parts": {"own": 2.0, "fitted": 0.2, "invariance": 0.9}}
    told, row = verdict(results(writer, values, generative=worse), "equivariance")
    assert told == "fails"
    assert "not the paper's data" in "; ".join(row["remarks"])
    assert "a copy" not in "; ".join(row["remarks"])


def test_that_it_holds_needs_every_system_and_that_it_fails_needs_one(writer: Writer, values: dict[str, Any]) -> None:
    assert verdict(results(writer, values, "generative", "cnn"), "equivariance")[0] == "not run"
    worse = {"parts": {"own": 2.0, "fitted": 0.2, "invariance": 0.9}}
    told, row = verdict(results(writer, values, "generative", "cnn", generative=worse), "equivariance")
    assert told == "fails"
    assert row["notes"][-1] == "not measured: capsnet, matrix_capsules, scae"


def test_the_overall_error_is_the_mean_over_families(writer: Writer, values: dict[str, Any]) -> None:
    found = results(writer, values).numbers("equivariance", "cnn-toys")
    assert found is not None
    place = found.values["within_classes"]["trained"]["hidden"]["fitted"]
    for magnitude, error in zip(("15", "45", "90", "180"), (0.0, 0.2, 0.4, 0.6), strict=True):
        place["rotation"][magnitude] = spread(error, 0.08, 4)
    error = equivariance.overall(found, "hidden", "fitted")
    assert error is not None
    assert error.mean == pytest.approx((0.3 + 3 * 0.7) / 4)
    assert error.se == pytest.approx((0.02**2 + 0.08**2 / 4) ** 0.5 / 4 + 3 * 0.02 / 4)


def test_the_picture_has_the_layer_of_each_system_that_follows_best(writer: Writer, values: dict[str, Any]) -> None:
    found = results(writer, values, cnn={"maps": {"own": 0.9, "invariance": 1.1}, "hidden": {}})
    best = [equivariance.best_of(*each) for each in found.executed("equivariance")]
    of_runs = {layer.run: layer for layer in best if layer}
    capsules = of_runs["capsules-digits"]
    assert (capsules.name, capsules.measure) == ("parts", "own")
    assert [each and each.mean for each in (capsules.error, capsules.stays)] == pytest.approx([0.2, 0.9])
    assert of_runs["cnn-toys"].name == "maps", "its other layer is constant"
    (drawing,) = equivariance.draw(found)
    check_drawn([drawing])
    (axes,) = drawing.figure().axes
    assert [label.get_text() for label in axes.get_yticklabels()] == [*list(RUNS)[:5], "cnn-digits", "cnn-toys"]


def test_the_table_has_every_layer_and_the_controls_once(writer: Writer, values: dict[str, Any]) -> None:
    found = results(writer, values, cnn={"maps": {"own": 0.9, "invariance": 1.1}, "hidden": {}})
    table, _ = equivariance.build(found)
    rows = table.shown[table.shown["magnitude"] == "45"].set_index(["run", "layer"])
    assert rows["by theory"][("capsules-digits", "parts")] == "0.20 ± 0.02"
    assert rows["untrained, invariance"][("cnn-toys", "maps")] == "1.10 ± 0.02"
    assert rows["derivative, by theory"][("cnn-toys", "maps")] == "0.009 ± 0.000"
    columns = ["sd (%)", "dimensions", "by theory", "invariance"]
    assert rows.loc[("cnn-toys", "hidden"), columns].tolist() == ["0.01", "", "", ""]
    assert sorted(rows.loc["pixels"]["data"]) == ["digits (scikit-learn)", "toys (stand-in)"]
    moved = table.shown[table.shown["run"] == "quarter turns"][["family", "magnitude"]].to_numpy().tolist()
    assert moved == [["rotation", "90"], ["rotation", "180"]] * 2, "which are exact"


def test_steps_of_the_viewpoint_are_a_table_of_their_own(writer: Writer, values: dict[str, Any]) -> None:
    """Relative to all images and within classes; not among the maps of the plane, whose mean the claim is about."""
    _, table = equivariance.build(results(writer, values))
    rows = table.shown.set_index(["run", "layer"])
    assert set(rows.index.get_level_values(0)) == {"matrix-toys", "cnn-toys"}
    row = rows.loc[("matrix-toys", "poses")]
    assert row["step"] == "20° of azimuth"
    assert (row["one matrix"], row["within classes, one matrix"]) == ("4.00 ± 0.20", "8.00 ± 0.20")
    assert rows.loc[("cnn-toys", "hidden"), "one matrix"] == ""


# ---- errors over the number of training images

IMAGES = {"0.1": 80, "1": 800}
ERRORS_BY_SHARE = {
    "matrix-toys": ("matrix_capsules", 60_000, {"0.1": {"itself": 0.30}, "1": {"itself": 0.10}}),
    "cnn-toys": ("cnn", 400_000, {"0.1": {"itself": 0.40}, "1": {"itself": 0.20}}),
    "vae-digits": ("vae", 200_000, {"0.1": {"mu_sigma": 0.2}, "1": {"mu_sigma": 0.1}}),
}
"""Variant, parameters and errors of each run, so that the claim holds."""


def shares(
    writer: Writer, values: dict[str, Any], capsules: tuple[int, dict[str, float]] | None = None, epochs: int = 4
) -> Results:
    """Made-up results; `capsules` replaces parameters and errors of matrix capsules. The runs have two epochs."""
    for name, (_, parameters, errors) in ERRORS_BY_SHARE.items():
        label = LABELS[name.split("-")[-1]]
        if capsules and name == "matrix-toys":
            parameters, errors = capsules[0], {share: {"itself": error} for share, error in capsules[1].items()}
        found = {share: {how: spread(error, 0.01) for how, error in of.items()} for share, of in errors.items()}
        content = {"share": found, "images": {share: IMAGES[share] for share in found}}
        writer.numbers("data_efficiency", name, content, dataset=label)
        writer.numbers("train", name, {"parameters": {"generative": 0, "total": parameters}}, dataset=label)
    studies = {name: {"run": name, "shares": [0.1, 1.0], "epochs": epochs, "replicas": 2} for name in ERRORS_BY_SHARE}
    evidence = {"comparison": {"data_efficiency": {"capsules": "matrix-toys", "cnn": "cnn-toys"}}}
    variants = {name: variant for name, (variant, _, _) in ERRORS_BY_SHARE.items()}
    return made(writer, values, variants, data_efficiency=studies, evidence=evidence)


def test_the_claim_holds_where_fewer_parameters_have_lower_errors_on_every_share(
    writer: Writer, values: dict[str, Any]
) -> None:
    told, row = verdict(shares(writer, values), "params")
    assert told == "holds"
    assert row["ours"]["value"] == pytest.approx(0.75), "where capsules are worst"
    assert "not the paper's data" in "; ".join(row["remarks"])
    assert "matrix-toys has 60,000 parameters, cnn-toys 400,000" in row["notes"]
    assert "of the run's epochs" not in "; ".join(row["remarks"])
    assert "0.5 of the run's epochs" in "; ".join(verdict(shares(writer, values, epochs=1), "params")[1]["remarks"])


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
    assert verdict(shares(writer, values, capsules), "params")[0] == told


def test_the_figure_shows_every_run(writer: Writer, values: dict[str, Any]) -> None:
    found = shares(writer, values)
    (drawing,) = data_efficiency.draw(found)
    check_drawn([drawing])
    toys, _ = drawing.figure().axes
    (cnn,) = (bar for bar in toys.containers if bar.get_label() == "cnn-toys")
    assert list(cnn[0].get_xdata()) == [80, 800]
    assert list(cnn[0].get_ydata()) == [40, 20]
    (low, high), _ = cnn[2][0].get_segments()
    assert (low[1], high[1]) == (pytest.approx(39), pytest.approx(41)), "one sd, in percent"
