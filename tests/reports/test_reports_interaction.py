"""The page in use: sorting, filters, search and their addresses, without scripts too, and for everyone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from headless import Browser, find_browser
from made_up_report import Report

from pipeline.results.claims import load_claims

pytestmark = pytest.mark.skipif(find_browser() is None, reason="no Chromium or Chrome is installed")

CLAIMS = "[...document.querySelectorAll('.claim')].filter(row => row.offsetParent)"
SEEN = f"{CLAIMS}.map(row => row.id.slice(6))"
DOCUMENTS = (
    "[...document.querySelectorAll('.document')].filter(each => each.offsetParent).map(each => each.id.slice(3))"
)
ADDRESS = "location.search + location.hash"


@pytest.fixture
def opened(browser: Browser, report: Report) -> Browser:
    browser.open(report.page, 1280)
    return browser


def choose(browser: Browser, group: str, value: str) -> None:
    browser.evaluate(f"document.querySelector('label[for=show-{group}-{value}]').click()")


def back(browser: Browser, address: str) -> None:
    browser.evaluate("history.back()")
    browser.wait(f"{ADDRESS} === {address!r}")


def sort_by(browser: Browser, key: str) -> Any:
    browser.evaluate(f"document.querySelector('#of-000 th[data-key={key}] button').click()")
    return browser.evaluate(f"document.querySelector('#of-000 th[data-key={key}]').getAttribute('aria-sort')")


def column(browser: Browser, place: int) -> list[str]:
    cells = f"row.cells[{place}].dataset.sort"
    return browser.evaluate(f"[...document.querySelectorAll('#of-000 .claim')].map(row => {cells})")  # type: ignore[no-any-return]


def test_everything_is_shown_at_first(opened: Browser) -> None:
    assert opened.evaluate(SEEN) == [claim.id for claim in load_claims()]
    assert opened.evaluate(ADDRESS) == ""
    assert opened.evaluate("document.getElementById('found').textContent") == "86 of 86 claims"
    assert opened.evaluate("document.getElementById('reset').offsetParent === null")


def test_filters_combine_and_hide_documents_without_a_claim(opened: Browser) -> None:
    choose(opened, "verdict", "holds")
    assert opened.evaluate(f"{CLAIMS}.every(row => row.classList.contains('is-holds'))")
    assert opened.evaluate(DOCUMENTS) == ["000"]
    assert opened.evaluate("document.querySelector('.more').offsetParent === null")
    choose(opened, "setting", "stand-in")
    assert opened.evaluate(f"{CLAIMS}.every(row => row.matches('.is-holds.at-stand-in'))")
    assert len(opened.evaluate(SEEN)) > 0
    choose(opened, "document", "004")
    assert opened.evaluate(SEEN) == []
    choose(opened, "verdict", "all")
    choose(opened, "setting", "all")
    choose(opened, "document", "004")
    assert opened.evaluate(DOCUMENTS) == ["004"]
    assert opened.evaluate(SEEN) == [claim.id for claim in load_claims() if claim.document == "004"]
    assert opened.complaints == []


def test_search_finds_claims_that_have_all_words(opened: Browser) -> None:
    opened.evaluate("document.getElementById('find').focus()")
    opened.call("Input.insertText", text="vae AFFNIST")
    assert opened.evaluate(SEEN) == ["000.t1.vae.aff"]
    assert opened.evaluate("document.getElementById('found').textContent").startswith("1 of 86 claims")
    assert opened.evaluate(ADDRESS) == "?q=vae+AFFNIST"
    opened.evaluate("document.getElementById('reset').click()")
    assert len(opened.evaluate(SEEN)) == 86


def test_the_back_button_returns_to_the_view_before(opened: Browser) -> None:
    choose(opened, "verdict", "worse")
    worse = opened.evaluate(SEEN)
    choose(opened, "document", "000")
    sort_by(opened, "published")
    assert opened.evaluate(ADDRESS) == "?document=000&verdict=worse&sort=published.ascending"
    assert opened.evaluate(SEEN) != worse
    back(opened, "?document=000&verdict=worse")
    back(opened, "?verdict=worse")
    assert opened.evaluate(SEEN) == worse
    back(opened, "")
    assert len(opened.evaluate(SEEN)) == 86
    opened.evaluate("history.forward()")
    opened.wait(f"{ADDRESS} === '?verdict=worse'")
    assert opened.evaluate(SEEN) == worse


def test_an_address_restores_its_view(browser: Browser, report: Report) -> None:
    browser.open(report.page, 1280, address="?verdict=better&sort=published.descending&q=probe&unknown=1")
    seen = browser.evaluate(SEEN)
    assert 0 < len(seen) < 86
    assert browser.evaluate("document.getElementById('show-verdict-better').checked")
    assert browser.evaluate("document.getElementById('find').value") == "probe"
    values = {claim.id: claim.value or 0 for claim in load_claims()}
    assert [values[name] for name in seen] == sorted((values[name] for name in seen), reverse=True)


@pytest.mark.parametrize(
    "address", ["?verdict=nonsense", "?sort=nonsense.ascending", "?sort=published.sideways", "?q="]
)
def test_a_nonsensical_address_shows_everything(browser: Browser, report: Report, address: str) -> None:
    browser.open(report.page, 1280, address=address)
    assert browser.evaluate(SEEN) == [claim.id for claim in load_claims()]
    assert browser.complaints == []


def test_columns_sort_in_both_orders_and_back_to_the_documents(opened: Browser) -> None:
    before = opened.evaluate(SEEN)
    assert sort_by(opened, "published") == "ascending"
    rising = [value for value in column(opened, 1) if value]
    assert [float(value) for value in rising] == sorted(float(value) for value in rising)
    assert column(opened, 1)[len(rising) :] == [""] * (30 - len(rising))  # those without a number come last
    assert sort_by(opened, "published") == "descending"
    falling = column(opened, 1)
    assert falling[: len(rising)] == rising[::-1] or [float(v) for v in falling[: len(rising)]] == sorted(
        map(float, rising), reverse=True
    )
    assert falling[-1] == ""
    assert sort_by(opened, "verdict") == "ascending"
    assert [int(value) for value in column(opened, 4)] == sorted(int(value) for value in column(opened, 4))
    sort_by(opened, "verdict")
    assert sort_by(opened, "verdict") == "none"
    assert opened.evaluate(SEEN) == before


def test_a_link_to_a_claim_that_filters_hide_shows_it(browser: Browser, report: Report) -> None:
    browser.open(report.page, 1280, address="?document=004#claim-000.t1.t0.0")
    assert "000.t1.t0.0" in browser.evaluate(SEEN)
    assert browser.evaluate("document.querySelector('[id=\"claim-000.t1.t0.0\"] details').open")
    top = browser.evaluate("document.querySelector('[id=\"claim-000.t1.t0.0\"]').getBoundingClientRect().top")
    assert 0 <= top < 900


def test_filters_work_without_scripts(browser: Browser, report: Report) -> None:
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    browser.open(report.page, 1280)
    browser.call("Emulation.setScriptExecutionDisabled", value=False)  # to look; the page's script did not run
    assert browser.evaluate(SEEN) == [claim.id for claim in load_claims()]
    assert browser.evaluate("document.querySelector('.find').offsetParent === null")
    assert browser.evaluate("document.querySelectorAll('th button').length") == 0
    assert browser.evaluate("[...document.images].every(image => image.offsetParent)")
    assert browser.evaluate(f"{FILM}.offsetParent === null")
    choose(browser, "verdict", "holds")
    assert browser.evaluate(f"{CLAIMS}.every(row => row.classList.contains('is-holds'))")
    assert browser.evaluate(DOCUMENTS) == ["000"]
    choose(browser, "document", "004")
    assert browser.evaluate(SEEN) == []
    assert browser.complaints == []


def test_controls_work_with_the_keyboard(opened: Browser) -> None:
    opened.evaluate("document.getElementById('show-verdict-all').focus()")
    opened.press("ArrowRight", 39)
    assert opened.evaluate("document.activeElement.id") == "show-verdict-holds"
    assert opened.evaluate(f"{CLAIMS}.every(row => row.classList.contains('is-holds'))")
    opened.evaluate("document.querySelector('#of-000 th[data-key=published] button').focus()")
    opened.call(
        "Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter", text="\r", windowsVirtualKeyCode=13
    )
    assert "sort=published.ascending" in opened.evaluate(ADDRESS)


FILM = "document.querySelector('.film')"


def test_a_slider_turns_the_digit_by_keyboard(opened: Browser) -> None:
    opened.wait(f"{FILM}.dataset.shown")
    assert opened.evaluate(f"{FILM}.dataset.shown") == "0"
    assert opened.evaluate(f"{FILM}.parentElement.querySelector('.sheet').offsetParent === null")
    pictures = f"[...{FILM}.querySelectorAll('canvas')].map(canvas => canvas.toDataURL())"
    before = opened.evaluate(pictures)
    assert len(set(before)) == 4
    opened.evaluate(f"{FILM}.querySelector('input').focus()")
    opened.press("ArrowRight", 39)
    opened.wait(f"{FILM}.dataset.shown === '5'")
    for _ in range(5):
        opened.press("ArrowRight", 39)
    opened.wait(f"{FILM}.dataset.shown === '30'")
    assert opened.evaluate(f"{FILM}.querySelector('output').textContent") == "30°"
    after = opened.evaluate(pictures)
    assert all(a != b for a, b in zip(before, after, strict=True))
    opened.press("Home", 36)
    opened.wait(f"{FILM}.dataset.shown === '-180'")
    assert opened.evaluate(f"{FILM}.querySelector('input').getAttribute('aria-valuetext')").startswith(
        "\N{MINUS SIGN}180°, "
    )
    assert opened.complaints == []


def test_the_bars_show_the_presences(opened: Browser) -> None:
    opened.wait(f"{FILM}.dataset.shown")
    heights = (
        f"[...{FILM}.querySelectorAll('.presences i')].map(bar => Number(bar.style.transform.match(/[0-9.]+/)[0]))"
    )
    data = f"JSON.parse({FILM}.querySelector('script').textContent)"
    assert opened.evaluate(heights) == opened.evaluate(f"{data}.presences[{data}.values.indexOf(0)]")


ACCESSIBLE = """
(() => {
  const faults = [];
  const name = element => element.getAttribute('aria-label') || element.textContent.trim() ||
    (element.getAttribute('aria-labelledby') || '').split(' ').map(id => document.getElementById(id)?.textContent).join('') ||
    [...(element.labels || [])].map(label => label.textContent).join('');
  for (const element of document.querySelectorAll('a, button, input, select, summary, fieldset, table, nav, form, [role=region]'))
    if (!name(element)) faults.push('without a name: ' + element.outerHTML.slice(0, 80));
  for (const image of document.images) if (!image.alt) faults.push('without alt: ' + image.outerHTML.slice(0, 40));
  for (const table of document.querySelectorAll('table'))
    if ([...table.tHead.rows[0].cells].some(cell => cell.tagName !== 'TH' || cell.scope !== 'col' || !cell.textContent.trim()))
      faults.push('table heads: ' + table.outerHTML.slice(0, 80));
  for (const list of document.querySelectorAll('ul')) if ([...list.children].some(each => each.tagName !== 'LI')) faults.push('list');
  for (const list of document.querySelectorAll('dl')) if ([...list.children].some(each => !/^D[TD]$/.test(each.tagName))) faults.push('dl');
  let level = 0;
  for (const heading of document.querySelectorAll('h1, h2, h3, h4, h5, h6')) {
    const own = Number(heading.tagName[1]);
    if (own > level + 1) faults.push('heading skips a level: ' + heading.textContent);
    if (!heading.textContent.trim()) faults.push('empty heading');
    level = own;
  }
  if (document.querySelectorAll('main').length !== 1 || !document.documentElement.lang || !document.title) faults.push('frame');
  for (const scroll of document.querySelectorAll('.scroll')) if (scroll.tabIndex !== 0) faults.push('no keyboard reaches a scroll box');
  for (const input of document.querySelectorAll('[for]')) if (!document.getElementById(input.htmlFor)) faults.push('label of nothing');
  return faults;
})()
"""  # noqa: E501


def test_everything_has_a_name_and_its_place(opened: Browser, tmp_path: Path) -> None:
    opened.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert opened.evaluate(ACCESSIBLE) == []
    # The check itself finds faults.
    path = tmp_path / "bad.html"
    path.write_text("<h2></h2><button></button><img src='data:,'><table><thead><tr><td>x</table>", encoding="utf-8")
    opened.open(path, 400)
    assert len(opened.evaluate(ACCESSIBLE)) >= 5
