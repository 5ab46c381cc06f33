"""The full posterior over poses (document 000, section 2.3)."""

from __future__ import annotations

from pipeline.drawing.table import Row, Table, cells, measured_table
from pipeline.results.findings import Finding, Measure
from pipeline.results.reading import Numbers, Results
from pipeline.systems.generative.report.shared import answer, tested_on


def _posterior(results: Results) -> tuple[Numbers, str, list[str]]:
    """The posterior study: its numbers, its run and a note."""
    name, numbers = results.answering("posterior", results.evidence.generative.posterior)
    study = numbers.settings.posterior[name]
    # The paper does not say on how many seeds and images it checked this.
    return numbers, study.run, [f"bounds {tested_on(numbers, study.run, study.images)}"]


def full_posterior_bound(results: Results) -> Finding:
    """Section 2.3: Gaussian poses trained from the delta solution reach a higher bound than from the first step.

    Our number is the lead with the density of poses normalised: the two trainings end with different models, and only
    the normalised bounds of different models are of the same quantity. The lead must be of two standard errors by this
    density and by the document's. The noise of one seed is unknown: any lead then counts, with a remark.
    """
    numbers, run, notes = _posterior(results)
    refined, scratch, refined_normalised, scratch_normalised = (
        numbers.needed("guide", guide, bound)
        for bound in ("elbo", "elbo_normalised")
        for guide in ("refined", "scratch")
    )
    lead, printed = refined_normalised.minus(scratch_normalised), refined.minus(scratch)
    notes.append(f"by the document's density, not normalised, the lead is {printed.mean:.1f} ± {printed.sd:.1f} nats")
    holds = refined.clearly_above(scratch) and refined_normalised.clearly_above(scratch_normalised)
    finding = answer(results, numbers, run, lead, holds=holds, notes=notes)
    if refined.n == 1:
        finding.remarks.append("1 seed: the noise of the lead is unknown")
    return finding


PROBE_SDS = {"t0": 1.0, "t0_A0": 0.5}
"""Points: sds of the clean probes in Table 1. For a printed .00 it is 0.5, the largest value that rounds to it."""


def full_posterior_probes(results: Results) -> Finding:
    """Section 2.3: retraining with Gaussian poses changes the clean probes (t0; t0 and A0) by at most two sds.

    The sd is the larger of the paper's over seeds and that of our delta model. Our number is the change (points) of the
    probe that changes by more sds.
    """
    numbers, run, notes = _posterior(results)
    moves = []
    for features, sd in PROBE_SDS.items():
        before, after = (numbers.needed("guide", guide, features).scaled(100) for guide in ("delta", "refined"))
        moves.append((abs(after.mean - before.mean) / max(sd, before.sd), after.minus(before)))
    in_sds, move = max(moves, key=lambda each: each[0])
    return answer(results, numbers, run, move, holds=in_sds <= 2, notes=notes)


MEASURES: dict[str, Measure] = {"000.full.elbo": full_posterior_bound, "000.full.acc": full_posterior_probes}


def build(results: Results) -> list[Table]:
    """Bounds, pixel error and clean probes of three guides."""
    heads = {
        "elbo": ("ELBO", 1),
        "iwae": ("IWAE bound", 1),
        "elbo_normalised": ("ELBO, normalised", 1),
        "pixel_error": ("pixel error", 1),
        "t0_percent": ("t0 probe (%)", 1),
        "t0_A0_percent": ("t0 and A0 probe (%)", 1),
    }
    rows: list[Row] = [
        ([study, guide, numbers.settings.posterior[study].samples], cells(numbers, heads, "guide", guide), numbers)
        for study, numbers in results.executed("posterior")
        for guide in ("delta", "refined", "scratch")
    ]
    caption = (
        "Encoders with a full posterior over poses: evidence lower bound and importance-weighted bound with the given "
        "number of samples, in nats per test image; accuracy of refit probes on clean images. Delta: Gaussians around "
        "the delta poses, with sds chosen on validation images. Refined: Gaussian poses, trained further from there. "
        "From scratch: encoder and generative model trained together; this is another model, to be compared by the "
        "normalised ELBO. The document's density of poses integrates to less than 1, which lowers the other bounds."
    )
    return measured_table("posterior", "Full posterior over poses", caption, ["study", "guide", "samples"], heads, rows)
