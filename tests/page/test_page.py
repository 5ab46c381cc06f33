"""Marks of results that are not the profile's as it is now: a notice near the top, and at all that rests on one."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from made_up_page import CLAIMS, page, scorecard

from pipeline.layout import Layout
from pipeline.page.cards import cards, other_scorecards
from pipeline.results.freshness import CHANGED, GONE
from pipeline.results.reading import ResultError, Results


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path / "records", tmp_path / "arrays")


def parts(content: str) -> dict[str, str]:
    """The HTML of each claim, figure and table, and of the header."""
    found = {"header": content.split("<header>")[1].split("</header>")[0]}
    for claim in re.findall(r'id="claim-([^"]+)"', content):
        found[claim] = content.split(f'id="claim-{claim}"')[1].split("</tr>")[0]
    found["figure"] = content.split('id="figure-accuracy"')[1].split("</figure>")[0]
    for table in ("training", "sweep"):
        found[table] = content.split(f'id="table-{table}"')[1].split('class="numbers"')[0]
    return found


def marks(part: str) -> list[str]:
    """The words of the marks in a part, as they are read."""
    found = re.findall(r'<p class="other">(.*?)</p>', part)
    without_sign = [re.sub(r'<span aria-hidden="true">.</span> ', "", each) for each in found]
    return [html.unescape(re.sub(r"<[^>]+>", "", each)) for each in without_sign]


def notices(part: str) -> dict[str, str]:
    return dict(re.findall(r"<summary>(.*?)</summary><p><code>(.*?)</code></p>", part))


def test_a_mark_names_each_result_under_its_own_reason(results: Results) -> None:
    others = {"evaluate/capsules": CHANGED, "train/capsules": GONE, "sweep/capsules": CHANGED, "attack/x": GONE}
    found = parts(page(results, others=others))
    assert marks(found["000.a"]) == [f"{GONE}: train/capsules", f"{CHANGED}: evaluate/capsules"]
    assert marks(found["000.b"]) == [f"{CHANGED}: sweep/capsules"]
    assert marks(found["001.c"]) == []
    assert marks(found["training"]) == [f"{GONE}: train/capsules"]
    assert marks(found["sweep"]) == [f"{CHANGED}: sweep/capsules"]


def test_notices_list_what_is_missing_and_what_differs(results: Results) -> None:
    others = {"evaluate/capsules": CHANGED, "sweep/capsules": CHANGED, "train/old": GONE}
    content = page(results, ["attack/a", "attack/b"], others, incomplete=["evaluate/vae"])
    assert notices(parts(content)["header"]) == {
        "2 items of this profile were not executed": "attack/a, attack/b",
        "2 results were made with other settings than this profile has now": "evaluate/capsules, sweep/capsules",
        "1 result is no longer in this profile": "train/old",
        "1 result has no arrays or table here: their figures were drawn earlier, or are missing": "evaluate/vae",
    }
    assert content.index("commit <code>1f2e3d4</code>") < content.index('class="notice"') < content.index("<table")


def test_commits_are_short_and_link_to_the_repository_if_it_is_known(results: Results) -> None:
    assert "1f2e3d4c" not in page(results)
    assert "<code>1f2e3d4</code>" in page(results)
    linked = page(results, repository="https://example.org/capsules")
    assert '<a href="https://example.org/capsules/commit/1f2e3d4c"><code>1f2e3d4</code></a>' in linked


def test_a_claim_gives_its_setting_its_tolerance_and_how_to_measure_it_again(results: Results) -> None:
    found = parts(page(results))
    assert "paper&#39;s setting" in found["000.a"]
    assert "96 ± 2 % (2 of the document&#39;s sds)" in found["000.a"]
    assert "dvc repro train@capsules evaluate@capsules\ndvc repro -s figures tables" in found["000.a"]
    assert "stand-in data" in found["000.b"]
    assert "tolerance" not in found["000.b"]
    assert "dvc repro" not in found["001.c"]
    assert "profile switch" not in "".join(found.values())


def test_other_profiles_stand_beside_the_pages_own(results: Results) -> None:
    rows = scorecard(results, {})
    rows[0]["verdict"], rows[0]["ours"] = "worse", {"value": 91.25, "sd": 0.0, "n": 1}
    found = parts(page(results, scorecards={"paper": rows[:1]}))
    assert 'data-name="Ours, paper"' in found["000.a"]
    assert "91.2" in found["000.a"]
    assert found["000.a"].index(" within") < found["000.a"].index(" worse")
    assert "python -m pipeline profile switch paper\ndvc repro train@capsules evaluate@capsules" in found["000.a"]
    assert 'data-name="Ours, paper"' not in found["000.b"]  # that scorecard does not have this claim


def test_what_does_not_test_a_claim_says_so_beside_the_verdict_and_why_in_the_details(results: Results) -> None:
    rows = scorecard(results, {})
    rows[0]["verdict"], rows[0]["untested"] = "worse", "too short to test: because"
    (card, *_) = cards(rows, CLAIMS, "quick", {}, {})
    assert (card.own.untested, card.untested) == ("too short to test", "too short to test: because")
    found = parts(page(results, scorecards={"paper": rows[:1]}))["000.a"]
    assert '</span> worse</span><br><span class="soft">too short to test</span>' in found
    assert "because" not in found, "the details are the page's own"
    del rows[0]["untested"]  # type: ignore[misc]
    assert "worse" in parts(page(results, scorecards={"paper": rows[:1]}))["000.a"], "an older scorecard"


def test_a_corrupt_scorecard_of_another_profile_is_refused_by_name(tmp_path: Path) -> None:
    path = Layout(tmp_path, "paper").scorecard_path
    path.parent.mkdir(parents=True)
    for text in ("[{}]", "[" * 100_000):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ResultError, match=str(path)):
            other_scorecards(tmp_path, "quick")
    assert other_scorecards(tmp_path, "paper") == {}
