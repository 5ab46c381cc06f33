"""Tables of the probabilistic capsule model and of the models it is compared with."""

from __future__ import annotations

import pandas as pd

from pipeline.drawing.features import look
from pipeline.drawing.table import Table, spread, tracked
from pipeline.results.claims import load_claims
from pipeline.results.documents import LABELS
from pipeline.results.measured import Measured
from pipeline.results.provenance import dataset_label
from pipeline.results.reading import Results
from pipeline.systems.generative.report import presences
from pipeline.systems.generative.report.claims import PROBE_SDS
from pipeline.systems.generative.report.comparison import (
    evaluated,
    groups,
    other_images,
    paper_table_1,
    probe_table,
    sweep_table,
)
from pipeline.systems.generative.report.curves import in_order, name_of_engine, name_of_test
from pipeline.systems.generative.report.runs import sweeps

PAPER = f"the paper ({LABELS['mnist']})"
PROTOCOLS = {"refit": "ours, probe refit", "fixed": "ours, probe fixed"}


def build(results: Results) -> list[Table]:
    """Every table of this system that the results allow. Raises `ResultError` if a result file is corrupt."""
    builders = (table_1, presences.table, presences.ablation, optimised, posterior, sweep)
    return [table for builder in builders for table in builder(results)]


def table_1(results: Results) -> list[Table]:
    """Document 000's Table 1: our numbers by both protocols and the paper's; one table per set of training images."""
    found = evaluated(results)
    paper = paper_table_1(load_claims())
    tables = []
    for group in groups(results.evidence.generative.table_1, found):
        parts = []
        for run in group:
            part = probe_table(found[run]).rename(columns={"mean": "accuracy_percent", "sd": "sd_percent"})
            label, run_ids = dataset_label(found[run].records), tracked(found[run].records)
            parts.append(part.assign(run=run, dataset=label, tracking_run=run_ids))
        data = pd.concat(parts, ignore_index=True)
        upright = found[group[0]].run(group[0]).augmentation.rotation == 0
        beside = (paper if upright else paper.head(0)).rename(
            columns={"mean": "paper_percent", "sd": "paper_sd_percent"}
        )
        # The paper's numbers are shown with the protocol that they come from only.
        data = data.merge(beside.assign(protocol="refit"), on=["features", "protocol", "test"], how="left")
        records = [record for run in group for record in found[run].records]
        caption = (
            f"Accuracy (%) of a linear probe on {dataset_label(records)}, with test images rotated within the angle or "
            "warped affinely: mean ± sd over seeds. Probe refit: fit again on equally warped training images, the "
            "protocol that the paper's capsule rows agree with (MNIST, five seeds). Probe fixed: fit on clean images "
            f"only{other_images(found, group)}. All features are standardised, those of t0 as log odds: this "
            "enlarges traces that a sample of t0 does not show."
        )
        title = f"Probe accuracy over rotation: {' and '.join(group)}"
        tables.append(Table(f"table1-{group[0]}", title, caption, data, _table_1_shown(data), records))
    return tables


def _table_1_shown(data: pd.DataFrame) -> pd.DataFrame:
    tests = in_order(list(data["test"]))
    rows = []
    for features, block in data.groupby("features", sort=False):
        lines: list[tuple[str, pd.DataFrame, str, str]] = []
        theirs = block[block["paper_percent"].notna()]
        if not theirs.empty:
            lines.append((PAPER, theirs, "paper_percent", "paper_sd_percent"))
        for protocol, name in PROTOCOLS.items():
            ours = block[block["protocol"] == protocol]
            if not ours.empty:
                lines.append((name, ours, "accuracy_percent", "sd_percent"))
        for i, (source, values, mean, sd) in enumerate(lines):
            of_paper = source == PAPER
            cells = {
                row["test"]: spread(row[mean], row[sd], None if of_paper else row["n"])
                for row in values.to_dict("records")
            }
            first = look(str(features)).name if i == 0 else ""
            seeds = "" if of_paper else str(values["n"].min())
            rows.append([first, source, seeds, *(cells.get(test, "") for test in tests)])
    return pd.DataFrame(rows, columns=["features", "source", "seeds", *(name_of_test(test) for test in tests)])


_OPTIMISED = {
    "bound": ("bound (nats)", 1.0),
    "pixel_error": ("pixel error", 1.0),
    "accuracy": ("t0 probe fixed (%)", 100.0),
    "refit_accuracy": ("t0 probe refit (%)", 100.0),
}
_WORK = {"evaluations": "evaluations", "seconds": "seconds"}


def optimised(results: Results) -> list[Table]:
    """Test-time optimisation by engine and range of rotation: bound, pixel error and t0 probe before and after."""
    rows, shown, records = [], [], []
    for study, numbers in results.executed("optimise"):
        records += numbers.records
        images = int(numbers.number("images") or numbers.settings.optimise[study].images)
        for engine in numbers.names("engine"):
            for angle in sorted(numbers.names("engine", engine), key=float):
                place = ("engine", engine, angle)
                row: dict[str, object] = {"study": study, "engine": engine, "angle": float(angle), "images": images}
                cells = [study, name_of_engine(engine), name_of_test(f"rotated_{angle}"), f"{images:,}"]
                seeds = 0
                for name in _WORK:
                    found = numbers.measured(*place, name)
                    row[name] = found.mean if found else None
                    cells.append(
                        f"{found.mean:,.0f}" if found and found.mean >= 10 else f"{found.mean:.1f}" if found else ""
                    )
                for name, (_, factor) in _OPTIMISED.items():
                    for when in ("before", "after"):
                        found = numbers.measured(*place, f"{name}_{when}")
                        column = f"{name}{'_percent' * name.endswith('accuracy')}_{when}"
                        scaled = found.scaled(factor) if found else Measured(float("nan"), float("nan"), 0)
                        row[column], row[f"{column}_sd"] = scaled.mean, scaled.sd
                        seeds = max(seeds, scaled.n)
                        cells.append(spread(scaled.mean, scaled.sd, scaled.n) if found else "")
                row |= {"n": seeds, "dataset": dataset_label(numbers.records)}
                rows.append(row | {"tracking_run": tracked(numbers.records)})
                shown.append([*cells[:4], str(seeds), *cells[4:]])
    if not rows:
        return []
    head = ["study", "engine", "rotation", "images", "seeds", *_WORK.values()]
    for label, _ in _OPTIMISED.values():
        head += [f"{label}, before", "after"]
    caption = (
        f"Free-form optimisation of the bound from the encoder's output, on {dataset_label(records)}: gradient "
        "evaluations per image (without those of the objects alone after each climb, which cost about a tenth; the "
        "seconds include them), seconds for all images, bound in nats per image, squared pixel error summed over an "
        "image, and accuracy of a probe on t0, fit on encoded clean images (fixed) or on training images rotated and "
        "optimised in the same way (refit): mean ± sd over seeds."
    )
    data = pd.DataFrame(rows)
    return [Table("optimise", "Test-time optimisation", caption, data, pd.DataFrame(shown, columns=head), records)]


_GUIDES = {
    "delta": "delta poses, Gaussians around them",
    "refined": "Gaussian poses, from the delta solution",
    "scratch": "Gaussian poses, from scratch",
}
_MEASURED = {"elbo": 1.0, "iwae": 1.0, "elbo_normalised": 1.0, "pixel_error": 1.0, "t0": 100.0, "t0_A0": 100.0}


def posterior(results: Results) -> list[Table]:
    """The full posterior over poses: bounds, pixel error and clean probes of three guides (section 2.3)."""
    rows, shown, records = [], [], []
    for study, numbers in results.executed("posterior"):
        samples = numbers.settings.posterior[study].samples
        records += numbers.records
        for guide, words in _GUIDES.items():
            row: dict[str, object] = {"study": study, "guide": guide, "samples": samples}
            found = {name: numbers.measured("guide", guide, name) for name in _MEASURED}
            cells = []
            for name, value in found.items():
                column = f"{name}_percent" if name in PROBE_SDS else name
                scaled = value.scaled(_MEASURED[name]) if value else Measured(float("nan"), float("nan"), 0)
                row[column], row[f"{column}_sd"] = scaled.mean, scaled.sd
                cells.append(spread(scaled.mean, scaled.sd, scaled.n) if value else "")
            seeds = max((value.n for value in found.values() if value), default=0)
            row |= {"n": seeds, "dataset": dataset_label(numbers.records), "tracking_run": tracked(numbers.records)}
            rows.append(row)
            shown.append([study, words, f"{samples:,}", str(seeds), *cells])
    if not rows:
        return []
    head = [
        "study",
        "guide",
        "samples",
        "seeds",
        "ELBO",
        "IWAE bound",
        "ELBO, normalised",
        "pixel error",
        "t0 probe (%)",
    ]
    caption = (
        f"Encoders with a full posterior over poses on {dataset_label(records)}: evidence lower bound and "
        "importance-weighted bound with the given number of samples, in nats per test image; accuracy of refit probes "
        "on clean images (mean ± sd over seeds). The delta encoder has no density over poses, so it is measured with "
        "Gaussians around its poses; their two sds are chosen on validation images. From scratch, generative model and "
        "encoder are trained together, so these bounds belong to another model: compare it with the others by the "
        "normalised ELBO. The document's density of poses integrates to less than 1, which lowers the other bounds."
    )
    data = pd.DataFrame(rows)
    text = pd.DataFrame(shown, columns=[*head, "t0 and A0 probe (%)"])
    return [Table("posterior", "Full posterior over poses", caption, data, text, records)]


def sweep(results: Results) -> list[Table]:
    """Document 000's Figure 4 in numbers: accuracy after training and testing on rotations up to an angle."""
    parts, records = [], []
    for each in sweeps(results):
        part = sweep_table(each)
        if not part.empty:
            parts.append(part.assign(run=each.run, dataset=dataset_label(each.records)))
            records += each.records
    if not parts:
        return []
    data = pd.concat(parts, ignore_index=True).rename(columns={"mean": "accuracy_percent", "sd": "sd_percent"})
    angles = sorted(data["angle"].unique())
    rows = []
    for (name, features), block in data.groupby(["run", "features"], sort=False):
        cells = {
            row["angle"]: spread(row["accuracy_percent"], row["sd_percent"], row["n"])
            for row in block.to_dict("records")
        }
        rows.append(
            [str(name), look(str(features)).name, str(block["n"].min()), *(cells.get(angle, "") for angle in angles)]
        )
    shown = pd.DataFrame(
        rows, columns=["run", "features", "seeds", *(name_of_test(f"rotated_{angle:g}") for angle in angles)]
    )
    caption = (
        f"Accuracy (%) of a linear probe on {dataset_label(records)} when the model is both trained and tested on "
        "images rotated within the angle: mean ± sd over seeds. The paper's Figure 4 shows curves without numbers."
    )
    return [Table("sweep", "Trained and tested on rotations", caption, data, shown, records)]
