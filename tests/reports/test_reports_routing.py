"""Routing iterations in the report: the figure, the table, and the slider in use."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import made_up_matrix
import pytest
from headless import Browser, find_browser
from made_up import Writer, made_up_values
from made_up_matrix import with_matrix
from made_up_report import write_page
from recorded import recorded
from small import run_on
from test_reports_browser import MEASURE

from pipeline.drawing.drawings import Written
from pipeline.drawing.style import to_bytes
from pipeline.params import parse_params
from pipeline.report import routing

needs_browser = pytest.mark.skipif(find_browser() is None, reason="no Chromium or Chrome is installed")
FILM = "document.querySelector('#figure-routing-matrix-toys .film')"


@pytest.fixture
def routed(writer: Writer, values: dict[str, Any]) -> Writer:
    made_up_matrix.routed(writer, "matrix-toys")
    recorded(writer.results, parse_params(with_matrix(values)))
    return writer


def test_the_figure_has_its_words_and_its_film(routed: Writer) -> None:
    written = Written()
    (drawing,) = routing.draw(routed.results, written)
    assert (drawing.name, drawing.document) == ("routing-matrix-toys", "004")
    assert "runs 3 iterations" in drawing.caption
    assert "25 % in iteration 2, 11 % in iteration 3, 6 % in iteration 4" in drawing.caption
    assert drawing.caption.count(". ") <= 2
    assert to_bytes(drawing.figure(), "png").startswith(b"\x89PNG")
    film = json.loads(drawing.film)
    assert len(film["values"]) == 4
    assert film["classes"] == ["animal", "human", "airplane", "truck", "car"]
    assert [each["name"] for each in film["images"]] == ["human", "car, taken for airplane"]
    assert written.missing == []


def test_the_table_has_a_row_for_each_iteration(routed: Writer) -> None:
    (table,) = routing.build(routed.results)
    assert (table.name, table.document) == ("routing-004", "004")
    shown = table.shown.set_index("iteration")
    assert shown["the network's own"].tolist() == ["yes", "yes", "yes", "no"]
    assert shown["test error (%)"]["2"] == "25.0 ± 1.0"
    assert shown["moved (%)"].tolist() == ["", "25.0 ± 1.0", "11.1 ± 1.0", "6.2 ± 1.0"]
    assert shown["activation, right class"]["4"] == "0.875 ± 0.010"
    assert table.data["spread_others"].tolist() == [3, 1.5, 1, 0.75]
    assert table.data["moved"].tolist()[1] == 25


def test_a_capsnet_belongs_to_its_own_document(routed: Writer, values: dict[str, Any]) -> None:
    values = with_matrix(values)
    values["runs"]["capsnet-digits"] = run_on("capsnet", "digits")
    values["routing"]["capsnet-digits"] = {"run": "capsnet-digits", "images": 9, "iterations": 4}
    made_up_matrix.routed(routed, "capsnet-digits", classes=10)
    results = recorded(routed.results, parse_params(values))
    drawings = {drawing.name: drawing for drawing in routing.draw(results, Written())}
    assert drawings["routing-capsnet-digits"].document == "001"
    assert json.loads(drawings["routing-capsnet-digits"].film)["classes"] == [str(n) for n in range(10)]
    assert [table.name for table in routing.build(results)] == ["routing-001", "routing-004"]


def test_without_arrays_the_item_is_named(routed: Writer) -> None:
    (routed.arrays / "routing" / "matrix-toys" / "examples.npz").unlink()
    written = Written()
    assert list(routing.draw(routed.results, written)) == []
    assert written.missing == ["routing/matrix-toys (its examples)"]
    assert routing.build(routed.results), "the table needs none"


# ---- in use


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with both kinds of films."""
    writer = Writer(tmp_path_factory.mktemp("routed"))
    writer.everything()
    made_up_matrix.routed(writer, "matrix-toys")
    path = writer.root / "index.html"
    path.write_text(write_page(writer, parse_params(with_matrix(made_up_values()))), encoding="utf-8")
    return path


def test_the_page_holds_every_iteration(page: Path) -> None:
    content = page.read_text(encoding="utf-8")
    figure = content.split('id="figure-routing-matrix-toys"')[1].split("</figure>")[0]
    film = re.search(r'<script type="application/json">(.*?)</script>', figure, re.DOTALL)
    assert film is not None
    data = json.loads(film[1])
    assert all(len(image["shares"]) == len(data["values"]) == 4 for image in data["images"])
    assert '<img src="data:image/png;base64,' in figure, "a picture for readers without scripts"


@needs_browser
def test_the_slider_goes_through_the_iterations_by_keyboard(browser: Browser, page: Path) -> None:
    browser.open(page, 1280)
    browser.wait(f"{FILM}.dataset.shown")
    assert browser.evaluate(f"{FILM}.dataset.shown") == "1"
    assert browser.evaluate(f"{FILM}.querySelector('output').textContent") == "1 (equal shares)"
    assert browser.evaluate(f"{FILM}.parentElement.querySelector('.sheet').offsetParent === null")
    maps = f"[...{FILM}.querySelectorAll('.maps .view:not(:first-child) canvas')].map(each => each.toDataURL())"
    first = browser.evaluate(maps)
    assert len(first) == 2 * 5
    assert len(set(first)) == 2, "equal shares look alike for all classes of an image"
    browser.evaluate(f"{FILM}.querySelector('input').focus()")
    for _ in range(2):
        browser.press("ArrowRight", 39)
    browser.wait(f"{FILM}.dataset.shown === '3'")
    assert browser.evaluate(f"{FILM}.querySelector('output').textContent") == "3 (the network's last)"
    assert browser.evaluate(f"{FILM}.querySelector('input').getAttribute('aria-valuetext')") == (
        "3 (the network's last), most active: human; airplane"
    )
    assert len(set(browser.evaluate(maps))) == 10
    data = f"JSON.parse({FILM}.querySelector('script').textContent)"
    levels = f"[...{FILM}.querySelectorAll('.level i')].map(each => Number(each.style.transform.match(/[0-9.]+/)[0]))"
    assert browser.evaluate(levels) == browser.evaluate(f"{data}.images.flatMap(each => each.activations[2])")
    assert browser.evaluate(f"{FILM}.querySelectorAll('.right strong').length") == 2
    browser.press("Home", 36)
    browser.wait(f"{FILM}.dataset.shown === '1'")
    assert browser.evaluate(maps) == first
    assert browser.requests == [page.as_uri()]
    assert browser.complaints == []


@needs_browser
@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_overlaps_or_leaves_the_page(browser: Browser, page: Path, width: int) -> None:
    browser.open(page, width, dark=width == 400)
    browser.wait(f"{FILM}.dataset.shown")
    found = browser.evaluate(MEASURE)
    assert found["overlaps"] == []
    assert found["outside"] == []
    assert found["width"] <= width


@needs_browser
def test_without_scripts_the_pictures_are_shown(browser: Browser, page: Path) -> None:
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    browser.open(page, 1280)
    assert browser.evaluate(f"{FILM}.offsetParent === null")
    assert browser.evaluate(f"{FILM}.parentElement.querySelector('.sheet').offsetParent !== null")
