"""The page in a browser: no complaint, no request, nothing overlaps at the widths of a desk and of a telephone."""

from __future__ import annotations

from pathlib import Path

import pytest
from headless import Browser, find_browser
from made_up import made_up_values
from made_up_report import Report, moved_on, write_page

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


@pytest.fixture
def page(report: Report) -> Path:
    return report.page


@pytest.fixture(scope="module")
def marked(report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page after the profile has moved on from the results: with notices and marks."""
    content = write_page(report.writer, report.params, now=moved_on(made_up_values()))
    path = tmp_path_factory.mktemp("marked") / "index.html"
    path.write_text(content, encoding="utf-8")
    return path


def test_the_measure_sees_overlaps_and_overflow(browser: Browser, tmp_path: Path) -> None:
    """The referee itself: a page with one of each fault."""
    path = tmp_path / "bad.html"
    path.write_text(
        "<body style='margin:0'><p>first line</p><p style='margin-top:-30px'>second line</p>"
        "<div style='width:2000px;text-align:right'>far away</div><img src='http://127.0.0.1:9/x.png'>",
        encoding="utf-8",
    )
    browser.open(path, 400)
    found = browser.evaluate(MEASURE)
    assert found["overlaps"] == ["first line / second line"]
    assert found["outside"] == ["far away"]
    assert found["width"] == 2000
    assert "http://127.0.0.1:9/x.png" in browser.requests
    browser.evaluate("console.log('noise')")
    assert any("noise" in complaint for complaint in browser.complaints)


@pytest.mark.parametrize("which", ["page", "marked"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_overlaps_complains_or_leaves(
    browser: Browser, request: pytest.FixtureRequest, which: str, width: int, dark: bool
) -> None:
    page: Path = request.getfixturevalue(which)
    browser.open(page, width, dark=dark)
    for everything_open in (False, True):
        if everything_open:
            browser.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        found = browser.evaluate(MEASURE)
        assert found["inner"] == width
        assert found["count"] > 500
        assert found["overlaps"] == []
        assert found["outside"] == []
        assert found["width"] <= width
    images = "[...document.images].every(image => image.complete && image.naturalWidth > 100)"
    assert browser.evaluate(images)
    assert browser.requests == [page.as_uri()]
    assert browser.complaints == []


CONTRAST = """
(() => {
  const light = colour => {
    const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
      .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const KINDS = 'p, td, th, dd, dt, li, a, code, summary, legend, label, button, output, h1, h2, h3, h4, ' +
    '.tag, .verdict, .soft';
  let worst = 21;
  for (const element of document.querySelectorAll(KINDS)) {
    let below = element;
    const clear = each => /rgba\\(.*, 0\\)/.test(getComputedStyle(each).backgroundColor);
    while (below && clear(below)) below = below.parentElement;
    const ground = light(getComputedStyle(below || document.body).backgroundColor);
    const ink = light(getComputedStyle(element).color);
    worst = Math.min(worst, (Math.max(ground, ink) + 0.05) / (Math.min(ground, ink) + 0.05));
  }
  return worst;
})()
"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_letters_stand_out_from_their_ground(browser: Browser, marked: Path, dark: bool) -> None:
    browser.open(marked, 1280, dark=dark)
    assert browser.evaluate(CONTRAST) >= 4.5  # WCAG 2 level AA
