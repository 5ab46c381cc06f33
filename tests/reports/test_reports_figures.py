"""Figures: every one that the results give, the same bytes each time, and what is missing by name."""

from __future__ import annotations

import base64
import io
import shutil
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import matplotlib
import numpy as np
from made_up import Report, Writer, check_drawn, recorded
from PIL import Image
from records import changed, dump_record, load_record

from pipeline.drawing.drawings import Picture
from pipeline.drawing.style import DPI
from pipeline.page.figures import front_picture, load_figure, on_disk, vector_uri, write_figures
from pipeline.params import Params
from pipeline.report import draw

ALL = {
    "accuracy-capsules-digits.svg",
    "reconstructions-capsules-digits.png",
    "templates-capsules-digits.png",
    "objects-capsules-digits.png",
    "optimisation-capsules-digits.svg",
    "prior-capsules-digits.png",
    "sweep-capsules-digits.svg",
    "part-use-capsules-digits.png",
    "turning-capsules-digits.png",
}


def test_every_figure_is_drawn_the_same_each_time(report: Report) -> None:
    before = dict(matplotlib.rcParams)
    contents = check_drawn(draw(recorded(report.writer.results, report.params)))
    assert contents == {path.name: path.read_bytes() for path in report.figures.iterdir()}
    assert set(contents) == ALL
    for file, content in contents.items():
        named = content.replace(b"http://www.w3.org/", b"").count(b"://")
        assert file.endswith(".png") or not named, "a drawing names no address"
    assert dict(matplotlib.rcParams) == before


def test_a_picture_stays_while_its_arrays_are_away_and_its_result_is_the_same(
    report: Report, full: Writer, params: Params
) -> None:
    reports = full.root / "reports" / "quick"
    shutil.copytree(report.figures.parent, reports, dirs_exist_ok=True)
    folder = reports / "figures"
    results = recorded(full.results, params)
    shutil.rmtree(full.arrays)
    write_figures(folder, results)
    pictures, incomplete = on_disk(folder, results)
    assert "evaluate/capsules-digits (its examples)" in incomplete == results.missing
    assert {path.name for path in folder.iterdir()} == ALL
    assert {each.file for each in pictures} == ALL
    content = (folder / "templates-capsules-digits.png").read_bytes()
    assert content == (report.figures / "templates-capsules-digits.png").read_bytes()
    path = results.records / "evaluate" / "capsules-digits.json"
    dump_record(path, changed(load_record(path), "provenance/-1/tracking_run", "another"))
    for swept in full.metrics.glob("sweep/*"):
        if swept.stem != "capsules-digits-180":
            swept.unlink()
    write_figures(folder, results)
    assert not (folder / "templates-capsules-digits.png").exists(), "it showed a result that was made anew since"
    assert (folder / "reconstructions-capsules-digits.png").exists()
    assert not (folder / "sweep-capsules-digits.svg").exists(), "only one range of rotation is left"


# ---- inside the page, where they are smaller than their files, and show the same


def test_a_drawing_inside_the_page_draws_the_same(report: Report) -> None:
    svg = (report.figures / "accuracy-capsules-digits.svg").read_text()
    uri = vector_uri(svg)
    assert len(uri) < 1.2 * len(svg)
    assert not set('"#') & set(uri)
    before, after = (
        [
            (each.tag, *each.keys(), *" ".join(each.attrib.values()).split())
            for each in ElementTree.fromstring(of).iter()
        ]
        for of in (svg, unquote(uri).partition(",")[2])
    )
    assert after == [each for each in before if "metadata" not in each[0]]


def test_an_image_inside_the_page_has_the_same_pixels(report: Report) -> None:
    figure = Picture("templates-capsules-digits", "png", "Title", "Caption.", "Drawn.", [])
    shown = load_figure(report.figures, figure)
    content = (report.figures / figure.file).read_bytes()
    inside = base64.b64decode(shown.uri.partition(",")[2])
    assert len(inside) < len(content)
    with Image.open(io.BytesIO(inside)) as after, Image.open(io.BytesIO(content)) as before:
        assert np.array_equal(after.convert("RGB"), before.convert("RGB"))
        assert shown.width == round(before.width / DPI * 96)


def test_the_first_screen_shows_the_top_of_a_tall_figure(tmp_path: Path) -> None:
    tall = Image.new("L", (400, 1000), "black")
    tall.paste("white", (0, 0, 400, 200))
    tall.save(tmp_path / "scenes-tall.png")
    shown = load_figure(tmp_path, Picture("scenes-tall", "png", "Title", "Caption.", "Drawn.", []))
    front = front_picture([shown])
    assert front is not None
    with Image.open(io.BytesIO(base64.b64decode(front["uri"].partition(",")[2]))) as small:
        assert small.size == (400, 200)
        assert np.asarray(small).min() > 250
