"""The page as a file: self-contained, complete, escaped."""

from __future__ import annotations

import html
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from made_up import Report, Writer, page_of, recorded, scorecard

from pipeline.page.scorecard import VERDICTS, Row
from pipeline.params import Params
from pipeline.report import measures
from pipeline.results import documents
from pipeline.results.claims import load_claims
from pipeline.results.freshness import STATES

ROOT = Path(__file__).parents[2]
VOID = {"meta", "link", "input", "img", "br"}


class Page(HTMLParser):
    """Tags, attributes and text of a page; refuses tags that are not closed in order."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(content)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] not in ("style", "script"):
            self.text.append(data)

    def attributes(self, name: str) -> list[str]:
        return [value or "" for _, found in self.tags for key, value in found.items() if key == name]


def row_of(claim: str, content: str) -> str:
    return content.split(f'id="claim-{claim}"')[1].split("</tr>")[0]


@pytest.fixture
def content(report: Report) -> str:
    return report.content


def test_the_page_holds_everything_it_shows_and_refers_to(content: str) -> None:
    page = Page(content)
    for url in (*page.attributes("src"), *page.attributes("href")):
        assert url.startswith(("data:", "#", "../../pipeline/")), url[:80]
    without_scripts = re.sub(r"<script.*?</script>|data:image/[^\"]*", "", content, flags=re.DOTALL)
    assert not [words for words in ("://", "url(", "@import", "srcset=") if words in without_scripts]
    assert not {"iframe", "object", "embed"} & {tag for tag, _ in page.tags}
    assert not [name for _, found in page.tags for name in found if name.startswith("on")]
    assert len(content.encode()) < 5_000_000
    ids = Counter(page.attributes("id"))
    assert max(ids.values()) == 1
    for name in ("for", "aria-labelledby"):
        assert set(page.attributes(name)) <= set(ids)
    assert {url[1:] for url in page.attributes("href") if url.startswith("#")} <= set(ids)


def test_every_claim_is_shown_once_with_its_verdict(content: str) -> None:
    claims = load_claims()
    page = Page(content)
    shown = [found["id"] for tag, found in page.tags if tag == "tr" and "claim" in (found.get("class") or "").split()]
    assert shown == [f"claim-{claim.id}" for claim in claims]
    text = " ".join(page.text)
    assert all(claim.claim in text for claim in claims)
    # The made-up parameters have no SCAE, no capsule regression and no attention.
    answered = {name for name in measures() if name.startswith("000")} - {"000.fig4.scae"}
    assert content.count('class="claim is-not-run ') == len(claims) - len(answered)
    # A mark, hidden from screen readers, always with its word.
    assert set(re.findall(r'aria-hidden="true">.</span> ([a-z ]+)<', content)) == set(VERDICTS)
    row = row_of("000.t1.t0.0", content)
    assert "not the paper&#39;s data (MNIST)" in row
    assert "other settings" in row
    assert 'class="other"' not in content, "results of the profile as it is are not marked"
    assert 'class="notice"' not in content


def test_figures_and_tables_name_their_runs_and_link_to_their_code(content: str) -> None:
    page = Page(content)
    images = [found for tag, found in page.tags if tag == "img"]
    assert len(images) == 9 + 1  # and one of them, smaller, on the first screen
    assert all(len(found["alt"] or "") > 20 for found in images)
    for part in (*content.split("<figure ")[1:], *content.split('class="table"')[1:]):
        assert "Source: " in part
        assert "20251102-140509-" in part
        (file, function), *_ = re.findall(r'href="../../(pipeline/[^"]*\.py)#(\w+)">', part)
        assert f"\ndef {function}(" in (ROOT / file).read_text(encoding="utf-8")


def test_code_and_commits_are_linked_in_the_repository_that_has_an_address(report: Report) -> None:
    results = recorded(report.writer.results, report.params)
    content = page_of(results, report.params, repository="https://example.org/capsules")
    assert re.search(r'href="https://example.org/capsules/blob/HEAD/pipeline/[^"]*\.py#\w+"', content)
    assert 'href="https://example.org/capsules/commit/' in content
    assert "../../pipeline" not in content


def test_a_claim_says_how_to_measure_it_again_why_it_differs_and_what_other_profiles_found(
    full: Writer, params: Params, content: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "_of_data", lambda *_: [])  # as if digits were MNIST, so that claims are tested
    rows = scorecard(full, params)
    differs, other, *_ = [name for name, row in rows.items() if row["verdict"] in ("worse", "better", "fails")]
    provenance = {**rows[differs]["provenance"], "items": ["train/longer"], "seconds": 7200.0}
    paper: list[Row] = [
        {**rows[differs], "verdict": "within", "provenance": provenance},
        {**rows["000.t1.t0.0"], "verdict": "not tested", "judged": "worse"},
    ]
    page = page_of(recorded(full.results, params), params, scorecards={"paper": paper})
    said = {name: row_of(name, page) for name in rows}
    for name, row in rows.items():
        assert ("Why? " in said[name]) == (row["verdict"] not in ("within", "holds"))
        assert ("<dt>to test it" in said[name]) == (row["verdict"] not in ("within", "holds"))
    switch = "python -m pipeline profile switch paper &amp;&amp; "
    assert f"paper, verdict there: within (it took 2 h 0 min): <code>{switch}dvc repro train@longer<" in said[differs]
    own = " ".join(item.replace("/", "@") for item in rows[other]["provenance"]["items"])
    assert f"): <code>dvc repro {own}<" in said[other]
    missing = next(name for name, row in rows.items() if row["verdict"] == "not run")
    assert "<code>python -m pipeline status</code>" in said[missing]
    assert "dvc repro train@capsules-digits evaluate@capsules-digits" in said["000.t1.t0.0"]
    assert 'data-name="Ours, profile paper"' in said["000.t1.t0.0"]
    assert "would be: worse" in said["000.t1.t0.0"]
    assert 'data-name="Ours, profile paper"' not in content, "this has no other profile"


def test_text_from_files_is_escaped(writer: Writer, params: Params) -> None:
    nasty = "<script>alert('&')</script>"
    writer.train("capsules-digits", dataset=nasty, device=f'"><img src=x>{nasty}')
    writer.evaluate("capsules-digits", ["t0"], dataset=nasty, tracking_run=nasty, commit=nasty)
    claims = [
        claim.model_copy(update={"claim": nasty}) if claim.id == "000.t1.t0.0" else claim for claim in load_claims()
    ]
    content = page_of(recorded(writer.results, params), params, claims)
    page = Page(content)
    assert nasty not in content
    assert "x" not in page.attributes("src")
    assert "".join(page.text).count(nasty) > 5


def test_what_rests_on_results_of_other_settings_is_marked(marked: Report) -> None:
    Page(marked.content)
    vae, capsules = (row_of(f"000.t1.{name}.0", marked.content) for name in ("vae", "t0"))
    assert STATES["stale"] in html.unescape(vae)
    assert "evaluate/vae-digits" in vae
    assert 'class="other"' not in capsules
    notice = marked.content.split('class="notice"')[1].split("</div>")[0]
    assert "train/vae-digits, evaluate/vae-digits, sweep/vae-digits-0" in notice
