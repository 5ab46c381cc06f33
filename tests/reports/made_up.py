"""Made-up results: files shaped like those the stages write, with numbers that are nobody's measurements.

Also what stages and the page make of them: settings recorded with each result, figures, tables, the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from records import ResultFiles, changed, dump_record, load_record
from small import SMALL, small_params, small_run

from pipeline import report
from pipeline.classification.settings import CroppedRun
from pipeline.classification.viewpoint_matching import viewed
from pipeline.dependencies import Graph
from pipeline.drawing import style
from pipeline.drawing.drawings import Drawing
from pipeline.errors import UserError
from pipeline.page.figures import load_figure, on_disk, write_figures
from pipeline.page.page import build_page
from pipeline.page.scorecard import Row, build_scorecard
from pipeline.params import Params, parse_params
from pipeline.probes.sweep import swept
from pipeline.results.claims import Claim, load_claims
from pipeline.results.documents import documents
from pipeline.results.findings import Finding
from pipeline.results.freshness import compare, current_settings
from pipeline.results.reading import Results
from pipeline.systems.matrix_capsules.settings import MatrixCapsulesRun
from pipeline.systems.matrix_capsules.studies.ablation import ablated

ROOT = Path(__file__).parents[2]
CLAIMS = load_claims()
STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
UNUSED = (
    "equivariance", "data_efficiency", "infer", "routing", "regression", "regression_sets", "attention",
    "attention_sets", "presence_ablation", "ablation", "recipe", "viewpoint", "attack",
)  # fmt: skip
"""Sections of the parameters without an item, unless a test adds one."""


def made_up_values() -> dict[str, Any]:
    """Parameters of two runs on digits, for the made-up results."""
    digits = {"source": "digits", "canvas": 28, "train": 1200, "validation": 237, "test": 360, "split_seed": 0}
    runs = {
        "capsules-digits": small_run(dataset="digits", seed=0, model=SMALL | PAPERS_MODEL),
        "vae-digits": small_run("vae", dataset="digits", seed=0),
    }
    values, named = small_params(**runs), dict(zip(("capsules", "vae"), runs, strict=True))
    for study, changes in (("optimise", {"images": 64}), ("posterior", {"replicas": 2})):
        values[study]["capsules-digits"] |= changes
    for section, changes in (
        ("sweep", {"angles": [0.0, 45.0, 180.0]}),
        ("failures", {"images": 200}),
        ("sensitivity", {"epochs": 8}),
    ):
        values[section] |= changes
    evidence = {"table_1": named, "affine": named, "sweep": named}
    evidence |= dict.fromkeys(("optimise", "posterior"), "capsules-digits")
    more = {"profile": "quick", "own_images": {}, "datasets": {"digits": digits}}
    return values | more | {section: {} for section in UNUSED} | {"evidence": {"generative": evidence}}


def with_evidence(values: dict[str, Any], system: str, **groups: Any) -> dict[str, Any]:
    """The same with other evidence of a system; names of a group are added to those that it has."""
    before = values["evidence"].get(system, {})
    after = {
        name: {**before.get(name, {}), **roles} if isinstance(roles, dict) else roles for name, roles in groups.items()
    }
    return values | {"evidence": values["evidence"] | {system: before | after}}


PAPERS_MODEL = documents()["generative"]["capsules"]["model"] | {"seeding_epoch": 10_000, "pose_sd_start": 0.15}
"""What the capsule model of the made-up results has as the paper has it."""
DATASET = "digits (scikit-learn)"
TESTS = ["rotated_0", "rotated_45", "rotated_90", "rotated_135", "rotated_180", "affine"]
ACCURACY = {
    "t0": [0.95, 0.79, 0.60, 0.47, 0.41, 0.86],
    "t0_A0": [0.97, 0.90, 0.82, 0.69, 0.65, 0.92],
    "children": [0.90, 0.70, 0.51, 0.42, 0.38, 0.80],
    "t0_sampled": [0.91, 0.72, 0.55, 0.43, 0.38, 0.79],
    "t0_binary": [0.78, 0.61, 0.44, 0.35, 0.31, 0.66],
    "mu_sigma": [0.94, 0.68, 0.45, 0.30, 0.34, 0.52],
}


def spread(mean: float, sd: float = 0.01, n: int = 2) -> dict[str, Any]:
    return {"mean": mean, "sd": sd, "n": n}


def spreads(numbers: Mapping[str, Any], sd: float = 0.01, n: int = 2) -> dict[str, Any]:
    """Nested numbers as results hold them, all with the same sd; whole numbers stay as they are."""
    return {
        name: spreads(each, sd, n)
        if isinstance(each, dict)
        else spread(each, sd, n)
        if isinstance(each, float)
        else each
        for name, each in numbers.items()
    }


def presences(n: int = 2, information: float = 2.1) -> dict[str, Any]:
    """What evaluation measures of the presences of a generative model."""
    shares = {"presence_information": 1.0, "presence_information_by_object": 1.6, "presence_kl": 2.3}
    return spreads({name: share * information for name, share in shares.items()}, 0.03, n)


def record(stage: str, item: str, **values: Any) -> dict[str, Any]:
    """What provenance has beside stage and item."""
    return {
        "profile": "quick",
        "dataset": DATASET,
        "commit": "1f2e3d4c5b6a79880706050403020100deadbeef",
        "dirty": False,
        "params_hash": "abcdef012345",
        "device": "CPU (2 cores)",
        "epochs": 40.0,
        "seconds": 61.5,
        "tracking_run": f"20251102-140509-{stage}-{item}-a1b2c3",
    } | values


def pictures(*shape: int) -> np.ndarray:
    """Noise in [0, 1), the same each time."""
    return np.random.default_rng(0).random(shape)


class Writer(ResultFiles):
    """Writes made-up results below `root` as a repository would hold them."""

    def __init__(self, root: Path) -> None:
        super().__init__(root / "reports" / "quick" / "results", root / "results" / "quick")
        self.root, self.metrics, self.arrays = root, self.results.records, self.results.arrays

    def numbers(self, stage: str, item: str, values: dict[str, Any], **provenance: Any) -> Path:
        return super().numbers(stage, item, values, **record(stage, item, **provenance))

    def train(self, run: str, **provenance: Any) -> None:
        generative, total = (24_816, 1_315_042) if run.startswith("capsules") else (104_974, 208_000)
        numbers = {"seconds": 171.3, "parameters": {"generative": generative, "total": total}}
        self.numbers("train", run, numbers, **provenance)

    def evaluate(self, run: str, features: list[str], n: int = 2, **provenance: Any) -> None:
        probe = {}
        for name in features:
            refit = dict(zip(TESTS, ACCURACY[name], strict=True))
            fixed = {test: max(0.12, value - 0.09 * (test != "rotated_0")) for test, value in refit.items()}
            probe[name] = {"refit": spreads(refit, 0.012, n), "fixed": spreads(fixed, 0.02, n)}
        test = {"bound": spread(355.0, 3.0, n), "pixel_error": spread(13.2, 0.2, n)}
        if "t0_sampled" in features:
            test |= presences(n)
        failures: dict[str, Any] = {}
        if "t0" in features:
            use = {f"{angle}": {"consistency": spread(0.7, 0.02, n)} for angle in (0, 180)}
            copies = {"pairs": 0.6, "copied": 0.9, "faded_strokes_pairs": 0.3, "faded_strokes_pairs_sd": 0.1}
            # Poses follow a tenth of the turn.
            ways = {f"{angle}": 0.5 * float(np.sin(np.deg2rad(angle / 2))) for angle in range(30, 181, 30)}
            turned = spreads({at: {"deviation": way, "missed": 0.9} for at, way in ways.items()}, 0.005, n)
            failures = {"equivariance": {"parts": turned}, "templates": spreads(copies, n=n), "part_use": use}
        self.numbers("evaluate", run, {"probe": probe, "test": test, **failures}, **provenance)

    def pictures(self, run: str) -> None:
        arrays = dict.fromkeys(("templates", "alphas"), pictures(16, 12, 12))
        arrays |= dict.fromkeys(("object_images", "object_parts"), pictures(16, 28, 28))
        # The last two objects own no image.
        classes = np.concatenate([1 + 4 * np.eye(14, 10) + np.arange(14)[:, None], np.zeros((2, 10))])
        arrays |= {"prior_samples": pictures(26, 28, 28), "object_classes": classes}
        self.examples("evaluate", run, **arrays)

    def optimise(self, study: str) -> None:
        measured = ("bound", "pixel_error", "accuracy")
        before = {"0": (350.0, 14.0, 0.93), "180": (120.0, 46.0, 0.41)}
        after = {"0": (371.0, 11.0, 0.937), "180": (330.0, 17.0, 0.46)}
        work = {"gauss-newton": (40.0, 8.0), "l-bfgs": (120.0, 15.0), "adam": (300.0, 30.0)}
        errors = {"bound_rise_error": 2.0, "pixel_fall_error": 0.5, "bound_fell": 0.05, "refit_gain_error": 0.02}
        engines: dict[str, Any] = {engine: {} for engine in work}
        for (engine, (evaluations, seconds)), angle in product(work.items(), before):
            found = errors | {"evaluations": evaluations, "seconds": seconds}
            for when, of in (("before", before), ("after", after)):
                found |= {f"{name}_{when}": value for name, value in zip(measured, of[angle], strict=True)}
                found[f"refit_accuracy_{when}"] = found[f"accuracy_{when}"]
            found["refit_gain"] = after[angle][2] - before[angle][2]
            engines[engine][angle] = spreads(found)
        self.numbers("optimise", study, {"engine": engines, "images": 64, "seconds": 40.2})
        steps = [
            (replica, engine, float(angle), done, 10.0 * done, before[angle][0] + done - 8 * replica)
            for replica, engine, angle, done in product(range(2), work, before, range(5))
        ]
        names = ["replica", "engine", "angle", "round", "evaluations", "bound"]
        self.table("optimise", study, pd.DataFrame(steps, columns=names))
        drawn = dict.fromkeys(("images", "before", "after"), pictures(13, 28, 28))
        drawn |= dict.fromkeys(("arrangements_before", "arrangements_after"), pictures(13, 28, 28, 3))
        self.examples("optimise", study, angles=np.arange(-180, 181, 30).astype(np.float32), **drawn)

    def turn(self, study: str) -> None:
        self.numbers("turn", study, {"pixel_error": {"mean": spread(20.0, 1.0)}})
        grey, coloured = ((255 * pictures(*shape)).astype(np.uint8) for shape in ((72, 28, 28), (72, 28, 28, 3)))
        self.examples(
            "turn", study, images=grey, reconstructions=grey[::-1], arrangements=coloured,
            angles=np.arange(-180, 180, 5, dtype=np.float32), frames=0.3 * pictures(72, 16, 4, 2).astype(np.float32),
            presences=pictures(72, 16).astype(np.float32), colours=pictures(16, 3).astype(np.float32),
        )  # fmt: skip

    def posterior(self, study: str) -> None:
        guides = {
            "delta": (310.0, 330.0, 315.0, 15.0, 0.930, 0.960),
            "control": (311.0, 331.0, 316.0, 14.9, 0.929, 0.961),
            "refined": (345.0, 352.0, 350.0, 13.5, 0.925, 0.963),
            "scratch": (320.0, 331.0, 323.0, 14.5, 0.900, 0.940),
        }
        names = ("elbo", "iwae", "elbo_normalised", "pixel_error", "t0", "t0_A0")
        guide = {
            key: {name: spread(value, 0.01 if value < 1 else 2.0) for name, value in zip(names, values, strict=True)}
            for key, values in guides.items()
        }
        delta_sd = {"parts": spread(0.05, 0), "objects": spread(0.1, 0)}
        self.numbers("posterior", study, {"guide": guide, "delta_sd": delta_sd})

    def sweep(self, run: str, values: dict[str, dict[float, float]], n: int = 1) -> None:
        for angle in next(iter(values.values())):
            probe = {name: spread(by_angle[angle], 0.0 if n == 1 else 0.015, n) for name, by_angle in values.items()}
            measured: dict[str, Any] = {"probe": probe, "validation": {"bound": spread(300)}}
            if "t0" in values:
                measured["consistency"] = spread(0.8 / (1 + angle / 30), 0.02, n)
                arrays = {"images": pictures(10, 28, 28), "arrangements": pictures(10, 28, 28, 3)}
                self.examples("sweep", f"{run}-{angle:g}", **arrays)
            self.numbers("sweep", f"{run}-{angle:g}", measured)

    def sensitivity(self) -> None:
        for name, own in {"pose_sd_floor": 0.1, "pixel_sd": 0.2, "temperature": 1.0}.items():
            values = {
                f"{factor * own:g}": {"t0": 0.8 - 0.1 * abs(factor - 1), "t0_A0": 0.9, "pixel_error": 20.0 + 4 * factor}
                for factor in (0.5, 1.0, 2.0)
            }
            self.numbers("sensitivity", name, {"own": own, "value": spreads(values, 0.0, 1)})

    def everything(self) -> None:
        """Every item of the made-up parameters."""
        self.train("capsules-digits")
        self.train("vae-digits")
        self.evaluate("capsules-digits", ["t0", "t0_A0", "children", "t0_sampled", "t0_binary"])
        self.evaluate("vae-digits", ["mu_sigma"])
        self.pictures("capsules-digits")
        self.optimise("capsules-digits")
        self.turn("capsules-digits")
        self.posterior("capsules-digits")
        self.sweep(
            "capsules-digits",
            {"t0": {0: 0.93, 45: 0.74, 180: 0.47}, "t0_A0": {0: 0.96, 45: 0.9, 180: 0.81}},
        )
        self.sweep("vae-digits", {"mu_sigma": {0: 0.92, 45: 0.85, 180: 0.62}})
        self.sensitivity()


# ---- what stages and the page make of them


def graph_of(params: Params) -> tuple[Graph, dict[str, Any]]:
    """The stages under these parameters, and the parameters as values."""
    values = params.model_dump(mode="json")
    # Angles are named as params.yaml writes them: 45, not 45.0.
    angles = [round(angle) if angle == round(angle) else angle for angle in params.sweep.angles]
    return Graph(STAGES, {**values, "sweep": {**values["sweep"], "angles": angles}}), values


def recorded(results: Results, params: Params) -> Results:
    """The same results, every record with the settings that its item has under these parameters, and their evidence.

    Records of items that the parameters do not have stay as they are.
    """
    graph, values = graph_of(params)
    for path in results.records.glob("*/*.json"):
        content = load_record(path)
        try:
            settings = graph.settings(path.parent.name, path.stem, values)
        except UserError:
            continue
        content["provenance"][-1] |= {"settings": settings, "trained": _trained(params, path.parent.name, path.stem)}
        dump_record(path, content)
    return replace(results, evidence=params.evidence)


def _trained(params: Params, stage: str, item: str) -> dict[str, Any]:
    runs: dict[str, Any] = {}
    if stage == "sweep":
        name, _, angle = item.rpartition("-")
        runs = {"run": swept(params.runs[name], float(angle), params.sweep.replicas, params.sweep.training_share)}
    elif stage == "ablation":
        study = params.ablation[item]
        run = params.runs[study.run]
        assert isinstance(run, MatrixCapsulesRun)
        runs = {condition: ablated(run, study, condition) for condition in study.conditions}
    elif stage == "recipe":
        recipe = params.recipe[item]
        base = params.runs[recipe.run]
        assert isinstance(base, CroppedRun)
        runs = {condition: recipe.changed(base, condition) for condition in recipe.conditions}
    elif stage == "viewpoint":
        views = params.viewpoint[item]
        pair = {"capsules": views.capsules, "cnn": views.cnn}
        runs = {
            network: viewed(params.runs[name], views.dataset, views.epochs, views.replicas)
            for network, name in pair.items()
        }
    return {name: run.model_dump(mode="json") for name, run in runs.items()}


def scorecard(writer: Writer, params: Params, claims: str = "") -> dict[str, Row]:
    """Rows by claim, of results that were all made with these parameters.

    Args:
        claims: what the names of the claims start with.
    """
    return judged(recorded(writer.results, params), claims)


def judged(results: Results, claims: str = "") -> dict[str, Row]:
    """Rows by claim, as `scorecard`."""
    asked = [claim for claim in CLAIMS if claim.id.startswith(claims)]
    return {row["id"]: row for row in build_scorecard(asked, results)}


def finding(writer: Writer, params: Params, claim: str, changes: Mapping[str, Any] | None = None) -> Finding:
    """What results say of a claim after some numbers were changed.

    Args:
        changes: numbers by place, `<stage>/<item>/<key>/<key>...`.
    """
    for place, value in (changes or {}).items():
        stage, item, path = place.split("/", 2)
        file = writer.metrics / stage / f"{item}.json"
        dump_record(file, changed(load_record(file), path, value))
    return report.measures()[claim](recorded(writer.results, params))


def check_drawn(drawings: Iterable[Drawing]) -> dict[str, bytes]:
    """Every figure can be drawn, and has a title and words that end; the contents of their files by name."""
    contents = {}
    for drawing in drawings:
        content = contents[drawing.file] = style.to_bytes(drawing.figure(), drawing.kind)
        assert content.startswith(b"<?xml" if drawing.kind == "svg" else b"\x89PNG")
        assert drawing.title
        assert drawing.records
        assert drawing.caption.endswith(".")
        assert drawing.alt.endswith(".")
    return contents


def moved_on(values: dict[str, Any]) -> Params:
    """The profile after its VAE was changed, its optimise study taken out, and its sweep given other angles."""
    run = values["runs"]["vae-digits"]
    vae = run | {"training": run["training"] | {"epochs": run["training"]["epochs"] + 1}}
    sweep = values["sweep"] | {"angles": [0, *range(10, 90, 10)]}
    without = with_evidence(values, "generative", optimise=None)
    return parse_params(without | {"runs": values["runs"] | {"vae-digits": vae}, "optimise": {}, "sweep": sweep})


def page_of(
    results: Results, params: Params, claims: Sequence[Claim] | None = None, figures: Path | None = None, **more: Any
) -> str:
    """The page of the profile with these parameters, which may have moved on from the results.

    Args:
        figures: folder to draw them in; None: the page has none.
        more: of `build_page`.
    """
    claims = claims or CLAIMS
    differing = compare(results, current_settings(*graph_of(params)), publish=params.publish)
    rows, tables = build_scorecard(claims, results), list(report.build(results))
    shown = []
    if figures:
        write_figures(figures, results)
        pictures, more["incomplete"] = on_disk(figures, results)
        shown = [load_figure(figures, each) for each in pictures]
    return build_page(rows, claims, "quick", shown, tables, differing, **{"scorecards": {}, **more})


@dataclass(frozen=True)
class Report:
    """A report on made-up results, drawn once for all tests that only read it."""

    writer: Writer
    params: Params
    figures: Path
    page: Path
    content: str

    @classmethod
    def of(cls, writer: Writer, params: Params, now: Params | None = None) -> Report:
        page, figures = writer.root / "index.html", writer.root / "reports" / "quick" / "figures"
        content = page_of(recorded(writer.results, params), now or params, figures=figures)
        page.write_text(content, encoding="utf-8")
        return cls(writer, params, figures, page, content)
