"""The page in a browser: no complaint, no request, no overlaps; filters, search, sorting, films, and the keyboard."""

from __future__ import annotations

import pytest
from headless import Browser, find_browser
from made_up import Report

from pipeline.results.claims import load_claims

pytestmark = pytest.mark.skipif(find_browser() is None, reason="no Chromium or Chrome is installed")

# Boxes of everything that is seen: each line of each text, each image; cut where a scrolling box cuts them.
MEASURE = """
(() => {
  const boxes = [];
  const add = (element, what, rectangle) => {
    let {left, top, right, bottom} = rectangle;
    for (let box = element; box && box !== document.documentElement; box = box.parentElement) {
      if (!box.checkVisibility()) return;  // not displayed, or inside closed details
      const style = getComputedStyle(box);
      if (style.visibility === 'hidden' || style.opacity === '0') return;
      if (style.clipPath !== 'none') return;  // kept for screen readers only
      if (style.overflowX !== 'visible') {
        const edge = box.getBoundingClientRect();
        left = Math.max(left, edge.left); right = Math.min(right, edge.right);
        top = Math.max(top, edge.top); bottom = Math.min(bottom, edge.bottom);
      }
    }
    if (right - left > 0.5 && bottom - top > 0.5) boxes.push({what, left, top, right, bottom});
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode;
    if (!node.textContent.trim()) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const line of range.getClientRects()) add(node.parentElement, node.textContent.trim().slice(0, 40), line);
  }
  for (const image of document.images) add(image, 'image ' + image.alt.slice(0, 30), image.getBoundingClientRect());
  boxes.sort((a, b) => a.top - b.top);
  const overlaps = [];
  for (let i = 0; i < boxes.length; i++)
    for (let j = i + 1; j < boxes.length && boxes[j].top < boxes[i].bottom - 4; j++) {
      const a = boxes[i], b = boxes[j];
      // Lines of text may share the white above their letters, never the letters.
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 1 && high > 4) overlaps.push(a.what + ' / ' + b.what);
    }
  const outside = boxes.filter(box => box.left < -0.5 || box.right > innerWidth + 0.5).map(box => box.what);
  return {count: boxes.length, overlaps, outside, width: document.documentElement.scrollWidth, inner: innerWidth};
})()
"""

ACCESSIBLE = """
(() => {
  const faults = [];
  const name = element => element.getAttribute('aria-label') || element.textContent.trim() ||
    (element.getAttribute('aria-labelledby') || '').split(' ')
      .map(id => document.getElementById(id)?.textContent).join('') ||
    [...(element.labels || [])].map(label => label.textContent).join('');
  for (const element of document.querySelectorAll('a, button, input, summary, fieldset, table, nav, [role=region]'))
    if (!name(element)) faults.push('without a name: ' + element.outerHTML.slice(0, 80));
  for (const image of document.images) if (!image.alt) faults.push('without alt: ' + image.outerHTML.slice(0, 40));
  for (const cell of document.querySelectorAll('thead td, thead th:not([scope=col])')) faults.push('table head');
  let level = 0;
  for (const heading of document.querySelectorAll('h1, h2, h3, h4, h5, h6')) {
    const own = Number(heading.tagName[1]);
    if (own > level + 1 || !heading.textContent.trim()) faults.push('heading: ' + heading.textContent);
    level = own;
  }
  for (const scroll of document.querySelectorAll('.scroll')) if (scroll.tabIndex !== 0) faults.push('no keyboard');
  return faults;
})()
"""


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (400, True)])
def test_nothing_overlaps_complains_or_leaves(browser: Browser, marked: Report, width: int, dark: bool) -> None:
    browser.open(marked.page, width, dark=dark)
    browser.wait(f"{FILM}.dataset.shown")
    for everything_open in (False, True):
        if everything_open:
            browser.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        found = browser.evaluate(MEASURE)
        assert found["inner"] == width
        assert found["count"] > 500
        assert found["overlaps"] == []
        assert found["outside"] == []
        assert found["width"] <= width
    assert browser.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 100)")
    assert browser.evaluate(ACCESSIBLE) == []
    assert browser.requests == [marked.page.as_uri()]
    assert browser.complaints == []


CLAIMS = "[...document.querySelectorAll('.claim')].filter(row => row.offsetParent)"
SEEN = f"{CLAIMS}.map(row => row.id.slice(6))"
DOCUMENTS = (
    "[...document.querySelectorAll('.document')].filter(each => each.offsetParent).map(each => each.id.slice(3))"
)
UNTESTED = f"{CLAIMS}.length && {CLAIMS}.every(row => row.classList.contains('is-not-tested'))"
ADDRESS = "location.search + location.hash"
ALL = [claim.id for claim in load_claims()]


@pytest.fixture
def opened(browser: Browser, report: Report) -> Browser:
    browser.open(report.page, 1280)
    return browser


def choose(browser: Browser, group: str, value: str) -> None:
    browser.evaluate(f"document.querySelector('label[for=show-{group}-{value}]').click()")


def test_filters_combine_and_hide_documents_without_a_claim(opened: Browser) -> None:
    assert opened.evaluate(SEEN) == ALL
    choose(opened, "verdict", "not-tested")
    assert opened.evaluate(UNTESTED)
    assert opened.evaluate(DOCUMENTS) == ["000"]
    choose(opened, "setting", "other")
    assert len(opened.evaluate(SEEN)) > 0
    choose(opened, "verdict", "not-run")
    assert opened.evaluate(SEEN) == [], "a claim that was not run has no setting"
    choose(opened, "verdict", "not-tested")
    choose(opened, "document", "004")
    assert opened.evaluate(SEEN) == []
    choose(opened, "verdict", "all")
    choose(opened, "setting", "all")
    assert opened.evaluate(DOCUMENTS) == ["004"]
    assert opened.evaluate(SEEN) == [name for name in ALL if name.startswith("004")]


def test_search_finds_claims_that_have_all_words(opened: Browser) -> None:
    opened.evaluate("document.getElementById('find').focus()")
    opened.call("Input.insertText", text="vae AFFNIST")
    assert opened.evaluate(SEEN) == ["000.t1.vae.aff"]
    assert opened.evaluate("document.getElementById('found').textContent").startswith(f"1 of {len(ALL)} claims")
    assert opened.evaluate(ADDRESS) == "?q=vae+AFFNIST"
    opened.evaluate("document.getElementById('reset').click()")
    assert opened.evaluate(SEEN) == ALL


def test_an_address_restores_its_view(browser: Browser, report: Report) -> None:
    browser.open(report.page, 1280, address="?verdict=not-tested&sort=published.descending&q=probe&unknown=1")
    seen = browser.evaluate(SEEN)
    assert 0 < len(seen) < len(ALL)
    values = {claim.id: claim.value or 0 for claim in load_claims()}
    assert [values[name] for name in seen] == sorted((values[name] for name in seen), reverse=True)
    browser.open(report.page, 1280, address="?document=004#claim-000.t1.t0.0")
    assert "000.t1.t0.0" in browser.evaluate(SEEN), "a link to a claim that filters hide"
    assert browser.evaluate("document.querySelector('[id=\"claim-000.t1.t0.0\"] details').open")
    assert browser.complaints == []


def test_a_table_sorts_by_its_numbers(browser: Browser, marked: Report) -> None:
    browser.open(marked.page, 1280)
    of_table = "document.querySelector('table[aria-labelledby=table-systems]')"
    heads = f"[...{of_table}.querySelectorAll('th')]"
    place = browser.evaluate(f"{heads}.map(head => head.textContent)").index("rotated ±180°")
    seen = f"[...{of_table}.tBodies[0].rows].map(row => [row.cells[0].textContent, row.cells[{place}].textContent])"
    before = browser.evaluate(seen)
    orders = []
    for _ in range(3):
        browser.evaluate(f"{heads}[{place}].querySelector('button').click()")
        orders.append(browser.evaluate(seen))
    up, down, again = orders
    assert [name for name, _ in up[:2]] == ["capsules-digits", "vae-digits"]
    assert [name for name, _ in down[:2]] == ["vae-digits", "capsules-digits"]
    for each in (up, down):
        assert {text for _, text in each[2:]} == {"not measured"}, "what has no number comes last"
    assert again == before


def test_filters_and_pictures_work_without_scripts(browser: Browser, marked: Report) -> None:
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    browser.open(marked.page, 1280)
    browser.call("Emulation.setScriptExecutionDisabled", value=False)  # to look; the page's script did not run
    assert browser.evaluate(SEEN) == ALL
    assert browser.evaluate("document.querySelector('.find').offsetParent === null")
    assert browser.evaluate("document.querySelectorAll('th button').length") == 0
    assert browser.evaluate("[...document.images].every(image => image.offsetParent)")
    for film in (FILM, ROUTING):
        assert browser.evaluate(f"{film}.offsetParent === null")
        assert browser.evaluate(f"{film}.parentElement.querySelector('.sheet').offsetParent !== null")
    choose(browser, "verdict", "not-tested")
    assert browser.evaluate(UNTESTED)


def test_controls_work_with_the_keyboard(opened: Browser) -> None:
    opened.evaluate("document.getElementById('show-verdict-all').focus()")
    opened.press("ArrowRight", 39)
    assert opened.evaluate("document.activeElement.id") == "show-verdict-not-tested"
    assert opened.evaluate(UNTESTED)
    opened.evaluate("document.querySelector('#of-000 th[data-key=published] button').focus()")
    enter = {"key": "Enter", "code": "Enter", "text": "\r", "windowsVirtualKeyCode": 13}
    opened.call("Input.dispatchKeyEvent", type="keyDown", **enter)
    assert "sort=published.ascending" in opened.evaluate(ADDRESS)


FILM = "document.querySelector('.film')"
ROUTING = "document.querySelector('#figure-routing-matrix-toys .film')"


def test_a_slider_turns_the_digit_by_keyboard(opened: Browser) -> None:
    opened.wait(f"{FILM}.dataset.shown")
    pictures = f"[...{FILM}.querySelectorAll('canvas')].map(canvas => canvas.toDataURL())"
    before = opened.evaluate(pictures)
    assert len(set(before)) == 4
    heights = (
        f"[...{FILM}.querySelectorAll('.presences i')].map(bar => Number(bar.style.transform.match(/[0-9.]+/)[0]))"
    )
    data = f"JSON.parse({FILM}.querySelector('script').textContent)"
    assert opened.evaluate(heights) == opened.evaluate(f"{data}.presences[{data}.values.indexOf(0)]")
    opened.evaluate(f"{FILM}.querySelector('input').focus()")
    opened.press("ArrowRight", 39)
    opened.wait(f"{FILM}.dataset.shown === '5'")
    opened.press("Home", 36)
    opened.wait(f"{FILM}.dataset.shown === '-180'")
    assert all(a != b for a, b in zip(before, opened.evaluate(pictures), strict=True))
