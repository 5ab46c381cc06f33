"""The page as a file: self-contained, complete, escaped, the same for the same results."""

from __future__ import annotations

import html
import re
import shutil
from collections import Counter
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from made_up import Writer
from made_up_report import Report, moved_on, write_page
from recorded import recorded

from pipeline.drawing.drawings import Written
from pipeline.page.images import load_figures, vector_uri
from pipeline.page.scorecard import VERDICTS
from pipeline.params import Params
from pipeline.report import draw, measures
from pipeline.results.claims import load_claims
from pipeline.results.freshness import CHANGED, GONE
from pipeline.results.reading import ResultError

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


@pytest.fixture
def content(report: Report) -> str:
    return report.content


def test_the_page_holds_everything_it_shows(content: str) -> None:
    page = Page(content)
    for url in (*page.attributes("src"), *page.attributes("href"), *page.attributes("srcset")):
        assert url.startswith(("data:", "#")), url[:80]
    without_scripts = re.sub(r"<script.*?</script>|data:image/[^\"]*", "", content, flags=re.DOTALL)
    assert "://" not in without_scripts
    assert "url(" not in without_scripts
    assert "@import" not in without_scripts
    assert not any(tag in ("iframe", "object", "embed") for tag, _ in page.tags)
    assert not page.attributes("style")  # the policy would block them
    assert not [name for _, found in page.tags for name in found if name.startswith("on")]
    assert len(content.encode()) < 6_000_000


def test_ids_are_unique_and_references_lead_somewhere(content: str) -> None:
    page = Page(content)
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
    for claim in claims:
        assert claim.claim in text
    # The made-up parameters have no SCAE, no capsule regression and no attention.
    answered = {name for name in measures() if name.startswith("000")} - {"000.fig4.scae"}
    assert content.count('class="claim is-not-run ') == len(claims) - len(answered)
    # A mark, hidden from screen readers, always with its word.
    assert set(re.findall(r'aria-hidden="true">.</span> ([a-z ]+)<', content)) == set(VERDICTS)


def test_stand_ins_are_marked_on_the_page(content: str) -> None:
    row = content.split('id="claim-000.t1.t0.0"')[1].split("</tr>")[0]
    assert "not the paper&#39;s data (MNIST)" in row
    assert "stand-in data" in row


def test_figures_and_tables_name_their_runs(content: str) -> None:
    page = Page(content)
    images = [found for tag, found in page.tags if tag == "img"]
    assert len(images) == 16 + 1  # and one cut from them for the first screen
    assert all(len(found["alt"] or "") > 20 for found in images)
    for part in (*content.split("<figure ")[1:], *content.split('class="table"')[1:]):
        assert "Source: " in part
        assert "20251102-140509-" in part


def test_headings_descend_by_one_level_at_most(content: str) -> None:
    levels = [int(tag[1]) for tag, _ in Page(content).tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_text_from_files_is_escaped(full: Writer, params: Params, report: Report) -> None:
    nasty = "<script>alert('&')</script>"
    full.train("capsules-digits", dataset=nasty, device=f'"><img src=x>{nasty}')
    full.evaluate("capsules-digits", ["t0", "t0_A0", "children"], dataset=nasty, tracking_run=nasty, commit=nasty)
    claims = [
        claim.model_copy(update={"claim": nasty}) if claim.id == "000.t1.t0.0" else claim for claim in load_claims()
    ]
    content = write_page(full, params, claims)
    page = Page(content)
    assert [tag for tag, _ in page.tags if tag == "script"] == [
        tag for tag, _ in Page(report.content).tags if tag == "script"
    ]
    assert "x" not in page.attributes("src")
    assert "".join(page.text).count(nasty) > 5


def test_results_of_the_profile_as_it_is_are_not_marked(content: str) -> None:
    assert 'class="other"' not in content
    assert 'class="notice"' not in content


def test_the_same_results_give_the_same_page(full: Writer, params: Params, report: Report) -> None:
    assert write_page(full, params) == report.content


def test_a_page_without_results_says_so(writer: Writer, params: Params) -> None:
    content = write_page(writer, params)
    page = Page(content)
    assert content.count('class="claim is-not-run ') == len(load_claims())
    text = " ".join(page.text)
    assert "There are no figures yet." in text
    assert "There are no tables yet." in text
    assert "train/capsules-digits" in text


def test_what_rests_on_results_of_other_settings_is_marked(
    full: Writer, params: Params, values: dict[str, Any]
) -> None:
    content = write_page(full, params, now=moved_on(values))
    Page(content)

    def marks(begin: str, end: str) -> str:
        part = content.split(begin)[1].split(end)[0]
        return html.unescape(" ".join(re.findall(r'<p class="other">.*?</p>', part)))

    vae, capsules = (marks(f'id="claim-000.t1.{row}.0"', "</tr>") for row in ("vae", "t0"))
    assert CHANGED in vae
    assert "evaluate/vae-digits" in vae
    assert capsules == ""
    optimised = marks('id="claim-000.fig3"', "</tr>")
    assert GONE in optimised
    assert "optimise/capsules-digits" in optimised
    assert CHANGED in marks('id="figure-learning-vae-digits"', "</figure>")
    assert marks('id="figure-learning-capsules-digits"', "</figure>") == ""
    training = marks('id="table-training"', "</table>")
    assert "train/vae-digits" in training
    assert "train/capsules-digits" not in training
    notice = content.split('class="notice"')[1].split("</div>")[0]
    assert "train/vae-digits, evaluate/vae-digits, sweep/vae-digits-0" in notice
    assert "6 results are no longer in this profile" in notice
    assert "16 items of this profile were not executed" in notice


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("templates-capsules-digits.png", b""),
        ("templates-capsules-digits.png", b"JFIF" * 10),
        ("learning-vae-digits.svg", b"<html></html>"),
        ("learning-vae-digits.svg", None),
    ],
)
def test_a_corrupt_figure_is_refused_by_name(report: Report, tmp_path: Path, name: str, damage: bytes | None) -> None:
    folder = shutil.copytree(report.figures, tmp_path / "figures")
    path: Path = folder / name
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage)
    with pytest.raises(ResultError, match=str(path)):
        load_figures(folder, draw(recorded(report.writer.results, report.params), Written()))


def test_a_drawing_is_embedded_without_its_last_decimals() -> None:
    svg = """<svg width="9pt" clip-path="url(#a)"><!-- no -->
    <path d="M 1.23456 -0.98765 L 10 2" transform="translate(3.14159 2) scale(0.015625)" title="it's 5 %"/>
    </svg>"""
    uri = vector_uri(svg)
    assert '"' not in uri
    assert "#" not in uri
    shown = unquote(uri.partition(",")[2]).replace("'", '"').replace("&#39;", "'")
    assert shown == (
        '<svg width="9pt" clip-path="url(#a)"><path d="M 1.23 -0.98 L 10 2" '
        'transform="translate(3.14 2) scale(0.015625)" title="it\'s 5 %"/></svg>'
    )
