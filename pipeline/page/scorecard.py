"""The scorecard: every claim with the document's number, our number and a verdict.

The rules for verdicts:

- A claim without a number "holds" or "fails", according to its check.
- A claim with a number is "within" if our mean differs from the number by at most a tolerance. The tolerance is twice
  the standard deviation that the document gives. If the document gives none, the tolerance is the claim's `tolerance`
  in claims.yaml. If claims.yaml gives none either, the tolerance is twice the binomial standard error of the document's
  number on 10,000 test images, as many as MNIST has. A different choice of images can change a number by as much.
- Outside the tolerance, a claim is "better" if our mean differs from the number in the direction that claims.yaml
  calls `better`: "higher" for accuracies, "lower" for errors. Else it is "worse". A claim about a baseline has
  `better: neither`. It is "worse" in both directions, because a better baseline also weakens the document's comparison.
- A claim without a measurement is "not run". A draft is a result made from uncommitted changes. If results are for
  publication (`publish` in params.yaml), a claim that rests on a draft is "not run", too.

These rules give the field `judged` of a row. In two cases the field `verdict` differs from it, and the page shows both:

- "undecided": our mean lies outside the tolerance, and differs from the document's number by at most two standard
  errors of our mean. Two claims without a number, `000.full.*`, are "undecided" if noise may be why they fail.
- "not tested": we did not reach the document's conditions, as one of four facts shows (`why` names the first that is
  true). (1) Our error on augmented training images, in the last epoch (in an ablation, in the epoch whose weights are
  kept), is above the document's error. (2) Our error still falls: its mean over the last eighth of the epochs is below
  that of the previous eighth, by more than two (binomial) standard errors of the difference. It is the error on test
  images if the run tests some of them after every epoch, else on validation images. (3) Training was shorter than in
  the document or its published code (in sweeps and `003.params`: than that of our own run), or had fewer images. (4)
  The images are not the document's (other data, copies, or our own distortions), or one of its data sets is missing. A
  claim with a number is "not tested" if (4) is true, whatever our number; (1) to (3) count only if our number is
  "worse", and (1) and (2) only if the claim is about an error, and our error is above the document's. A claim without a
  number is "not tested" if (3) or (4) is true, even if it holds here. If the rules give both "undecided" and "not
  tested", the verdict is "not tested".

The cause of a disagreement is never certain. The field `why` of a row gives one possible cause and its kind. For "not
tested" (kind budget or data) and "undecided" (kind noise), the cause is the reason for the verdict. For "better",
"worse" and "fails", it is one remark of the finding: the first in the order setting, noise, budget. If there is no
remark, the kind is "unexplained". For "not run", `why` says what is missing.

If settings are smaller than the document's, or differ from them, a verdict says little about the document. Such a row
is judged by the same rules. Its field `remarks` names the differences, and its verdict is counted separately (`tier`,
`count_verdicts`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypedDict, get_args

from pipeline import report
from pipeline.results.claims import Claim
from pipeline.results.findings import Finding, Measure, Remark
from pipeline.results.measured import SIGNIFICANT_SES
from pipeline.results.provenance import dataset_label, item_name, merged_provenance, unique
from pipeline.results.reading import NotMeasuredError, Results

Verdict = Literal["within", "better", "worse", "holds", "fails", "undecided", "not tested", "not run"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

Tier = Literal["document's setting", "other settings"]
TIERS: tuple[Tier, ...] = get_args(Tier)
"""Whether a measurement's setting is the document's, as far as the document gives it."""

TOLERATED_SDS = 2.0
TEST_IMAGES = 10_000
TOO_SHORT = "too short to test"


class Row(TypedDict):
    """A row of `scorecard.json`. `ours` has our mean (`value`), the number of replicas (`n`), and `sd`: the standard
    deviation over replicas, or a standard error if `standard_error` is true. `dataset` is the label of the data set
    (None if the claim was not run). `remarks` say how data and settings differ from the document's.
    """

    id: str
    document: str
    where: str
    claim: str
    paper: dict[str, float | None]
    ours: dict[str, Any] | None
    verdict: Verdict
    judged: Verdict
    why: tuple[str, str] | None
    dataset: str | None
    remarks: list[str]
    notes: list[str]
    provenance: dict[str, Any]


def tolerance(claim: Claim) -> tuple[float, str]:
    """The largest distance between our mean and a claim's number that counts as "within", in the claim's unit, and the
    reason for this limit, in words. The claim must have a number. For the rules, see the module.
    """
    assert claim.value is not None
    if claim.sd is not None:
        return TOLERATED_SDS * claim.sd, "two of the document's standard deviations"
    if claim.tolerance is not None:
        return claim.tolerance, "set for this claim"
    share = min(max(claim.value / 100, 0.0), 1.0)
    distance = TOLERATED_SDS * 100 * math.sqrt(share * (1 - share) / TEST_IMAGES)
    return distance, f"two standard errors of the document's number on {TEST_IMAGES:,} test images"


def judge(claim: Claim, finding: Finding | None) -> Verdict:
    """The verdict that our number or the claim's check gives (field `judged`). For the rules, see the module."""
    if finding is None:
        return "not run"
    if claim.value is None:
        return "holds" if finding.holds else "fails"
    assert finding.ours is not None
    above = finding.ours.mean - claim.value
    # 1e-9 is for rounding: 0.57 * 100 is not 57 in floating point. A difference equal to the tolerance is "within".
    if abs(above) <= tolerance(claim)[0] + 1e-9:
        return "within"
    return "better" if claim.better == ("higher" if above > 0 else "lower") else "worse"


def untested(claim: Claim, finding: Finding) -> tuple[str, str] | None:
    """The reason why a finding does not decide its claim: its kind and its text. The kind "noise" gives the verdict
    "undecided", other kinds "not tested". None if the verdict of `judge` stands. For the rules, see the module.
    """
    judged, ours, learned = judge(claim, finding), finding.ours, finding.learned
    budget, data = ([each for each in finding.remarks if each.kind == kind] for kind in ("budget", "data"))
    if claim.value is None:
        reasons = [*budget, *data, *[Remark(finding.undecided, "noise")] * bool(finding.undecided)]
        return (reasons[0].kind, reasons[0]) if reasons else None
    assert ours is not None
    if judged == "worse" and learned and ours.mean > claim.value:  # then it is an error: a worse accuracy is lower
        trained, before, last = learned.training_error, learned.before, learned.last
        if trained is not None and trained > claim.value:
            told = f"training error {trained:.2f} %, the document's test error {claim.value:g} %"
            return "budget", f"{TOO_SHORT}: {told}"
        variance = sum(error * (100 - error) for error in (before, last))
        if learned.images and before - last > SIGNIFICANT_SES * math.sqrt(variance / learned.images):
            told = f"the {learned.measured} error still falls, from {before:.2f} to {last:.2f} %"
            return "budget", f"{TOO_SHORT}: {told} over the last quarter of the epochs"
    if reasons := [*(budget if judged == "worse" else []), *data]:
        return reasons[0].kind, reasons[0]
    noise = SIGNIFICANT_SES * ours.se
    undecided = judged != "within" and abs(ours.mean - claim.value) <= noise
    return ("noise", f"two standard errors of our mean are {noise:.2g}") if undecided else None


def _measured(measure: Measure, results: Results) -> tuple[Finding | None, str]:
    """The finding of `measure` and an empty text, or None and the reason why nothing was measured."""
    try:
        return measure(results), ""
    except NotMeasuredError as error:
        return None, str(error)


def _why(judged: Verdict, remarks: Sequence[Remark], missing: str) -> tuple[str, str] | None:
    """The kind and the text of one possible cause of a disagreement with the document (for the rules, see the module).
    None if the verdict is "within" or "holds". If it is "not run", the kind is "not run", too, and the text `missing`.
    """
    if judged in ("within", "holds"):
        return None
    if judged == "not run":
        return "not run", missing
    if not remarks:
        return "unexplained", "setting, budget and data are the document's, as far as it gives them"
    # No remark is on data here, as the claim was tested. With a smaller budget it is tested if our number is better, so
    # budget is the least likely cause.
    first, *others = sorted(remarks, key=lambda each: ("setting", "noise", "budget").index(each.kind))
    kinds = unique(each.kind for each in others if each.kind != first.kind)
    return first.kind, first + (f"; other differences: {', '.join(kinds)}" if kinds else "")


def _notes(claim: Claim, finding: Finding) -> list[str]:
    """A finding's notes, then a note for each entry of its field `others`: protocol, number and verdict."""
    others = [
        f"{protocol}: {each.mean:.1f} {claim.unit}, {judge(claim, replace(finding, ours=each))}"
        for protocol, each in finding.others.items()
    ]
    return [*finding.notes, *others]


def _draft_note(claim: Claim, finding: Finding) -> str:
    """A note for a claim that is "not run" because it rests on drafts. It says which verdict the drafts would give."""
    value = "" if finding.ours is None else f" ({finding.ours.mean:.4g} {claim.unit})"
    drafts = ", ".join(unique(item_name(record) for record in finding.records if record.get("dirty")))
    return f"drafts would give the verdict {judge(claim, finding)}{value}: {drafts} made from uncommitted changes"


def build_scorecard(
    claims: Sequence[Claim],
    results: Results,
    measures: Mapping[str, Measure] | None = None,
    *,
    drafts: bool = True,
) -> list[Row]:
    """One row per claim, in the claims' order.

    Args:
        measures: the function that measures each claim, by the claim's id; by default, all of `report.measures()`.
        drafts: whether drafts may answer claims. If False, a claim that rests on a draft is "not run", and a note
            gives the verdict that the draft would lead to.
    """
    measures = report.measures() if measures is None else measures
    answering = replace(results, drafts=drafts)
    rows = []
    for claim in claims:
        finding, missing = _measured(measures[claim.id], answering)
        notes = _notes(claim, finding) if finding else []
        if not drafts and (finding is None or any(record.get("dirty") for record in finding.records)):
            draft, missing = (finding, "") if finding else _measured(measures[claim.id], results)
            finding, missing = None, missing or "it rests on a draft"
            notes = [_draft_note(claim, draft)] if draft else []
        records, remarks, ours = (finding.records, finding.remarks, finding.ours) if finding else ([], [], None)
        judged, reason = judge(claim, finding), untested(claim, finding) if finding else None
        verdict: Verdict = judged if reason is None else "undecided" if reason[0] == "noise" else "not tested"
        marked = {"standard_error": True} if ours and ours.standard_error else {}
        rows.append(
            Row(
                id=claim.id,
                document=claim.document,
                where=claim.where,
                claim=claim.claim,
                paper={"value": claim.value, "sd": claim.sd},
                ours={"value": ours.mean, "sd": ours.sd, "n": ours.n, **marked} if ours else None,
                verdict=verdict,
                judged=judged,
                why=reason or _why(judged, remarks, missing),
                dataset=dataset_label(records) if finding else None,
                remarks=[str(remark) for remark in remarks],
                notes=notes,
                provenance=merged_provenance(records),
            )
        )
    return rows


def tier(row: Row) -> Tier | None:
    """Whether a row's setting is the document's; None if the claim was not run."""
    if row["verdict"] == "not run":
        return None
    return "other settings" if row["remarks"] else "document's setting"


def count_verdicts(rows: Sequence[Row]) -> dict[Tier | None, dict[Verdict, int]]:
    """The number of rows with each verdict, by tier. Rows whose verdict is "not run" have the tier None."""
    counts: dict[Tier | None, dict[Verdict, int]] = {each: dict.fromkeys(VERDICTS, 0) for each in (*TIERS, None)}
    for row in rows:
        counts[tier(row)][row["verdict"]] += 1
    return counts
