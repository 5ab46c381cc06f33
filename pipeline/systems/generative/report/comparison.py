"""The comparison in Table 1 and Figure 4: the capsule model, the other models, and the paper's numbers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pandas as pd

from pipeline.results.claims import Claim
from pipeline.results.provenance import merged_provenance
from pipeline.results.reading import Numbers, ResultError, Results
from pipeline.systems.generative.report.claims import TABLE_1
from pipeline.systems.generative.report.runs import Sweep

COMPARED = ("generative", "scae", "vae")
"""The systems that document 000 probes. Classifiers are probed too, but have their own tables."""


def paper_table_1(claims: Sequence[Claim]) -> pd.DataFrame:
    """Table 1 of document 000 as its claims give it: columns features, test, mean, sd (percent)."""
    figures = {claim.id: claim for claim in claims}
    rows = [(features, test, figures[name].value, figures[name].sd) for name, features, test in TABLE_1]
    return pd.DataFrame(rows, columns=["features", "test", "mean", "sd"])


def evaluated(results: Results) -> dict[str, Numbers]:
    """The evaluated runs of the systems compared, by name."""
    return {run: numbers for run, numbers in results.executed("evaluate") if numbers.run(run).variant in COMPARED}


def probe_table(numbers: Numbers) -> pd.DataFrame:
    """The accuracies of one evaluated run: columns features, protocol, test, mean, sd, n (percent)."""
    rows = []
    for features in numbers.names("probe"):
        for protocol in numbers.names("probe", features):
            for test in numbers.names("probe", features, protocol):
                found = numbers.measured("probe", features, protocol, test)
                if found is not None:
                    rows.append((features, protocol, test, found.mean * 100, found.sd * 100, found.n))
    if not rows:
        raise ResultError.at(numbers.path, "holds no accuracy under 'probe'")
    return pd.DataFrame(rows, columns=["features", "protocol", "test", "mean", "sd", "n"])


def sweep_table(sweep: Sweep) -> pd.DataFrame:
    """The sweep of one run: columns features, angle, mean, sd, n (percent), tracking_run."""
    rows: list[tuple[str, float, float, float, int, str]] = []
    for angle, numbers in sweep.items.items():
        tracked = " ".join(merged_provenance(numbers.records)["tracking_runs"])
        for features in numbers.names("probe"):
            found = numbers.measured("probe", features)
            if found is not None:
                rows.append((features, angle, found.mean * 100, found.sd * 100, found.n, tracked))
    return pd.DataFrame(rows, columns=["features", "angle", "mean", "sd", "n", "tracking_run"])


def groups(compared: Mapping[str, str], names: Collection[str]) -> list[list[str]]:
    """Runs to show together, of those called `names`: the capsules, SCAE and VAE that evidence compares, and every
    other run alone.
    """
    together = [run for role in ("capsules", "scae", "vae") if (run := compared.get(role, "")) in names]
    alone = [[name] for name in names if name not in together]
    return [together, *alone] if together else alone


def other_images(found: Mapping[str, Numbers], group: Sequence[str]) -> str:
    """A note on the runs of a group that were trained on other images than its first run; empty if there are none."""

    def words(name: str) -> str:
        canvas, shift = found[name].dataset_of(name).canvas, found[name].run(name).augmentation.shift
        return f"{canvas}x{canvas} pixels" + (f" shifted by up to {shift:g}" if shift else "")

    first, *others = group
    differing = [f"{name} on {words(name)}" for name in others if words(name) != words(first)]
    return f" ({first} was trained on {words(first)}, {' and '.join(differing)})" if differing else ""
