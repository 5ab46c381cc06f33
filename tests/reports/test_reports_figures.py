"""Figures: every one that the results give, the same bytes each time, and what is missing by name."""

from __future__ import annotations

import shutil

import matplotlib
from made_up import Report, Writer, changed, check_drawn, recorded
from records import dump_record, load_record

from pipeline.drawing.drawings import Drawing, Written
from pipeline.page.figures import incomplete, on_disk, write_figures
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
    "copies-capsules-digits.png",
    "part-use-capsules-digits.png",
    "turning-capsules-digits.png",
    "systems-parameters.svg",
}


def drawings_of(writer: Writer, params: Params) -> dict[str, Drawing]:
    """What results made with these parameters give, by name."""
    return {drawing.name: drawing for drawing in draw(recorded(writer.results, params), Written())}


def test_every_figure_is_drawn_the_same_each_time(report: Report) -> None:
    before = dict(matplotlib.rcParams)
    drawings = drawings_of(report.writer, report.params).values()
    contents = check_drawn(drawings)
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
    written = write_figures(folder, results)
    assert "evaluate/capsules-digits (its examples)" in incomplete(folder) == written.missing
    assert {path.name for path in folder.iterdir()} == ALL
    assert {f"{each.name}.{each.kind}" for each in on_disk(folder, results)} == ALL
    assert all(each.code.endswith(".py") for each in on_disk(folder, results) if each.name.startswith("templates"))
    content = (folder / "templates-capsules-digits.png").read_bytes()
    assert content == (report.figures / "templates-capsules-digits.png").read_bytes()
    path = results.records / "evaluate" / "capsules-digits.json"
    dump_record(path, changed(load_record(path), "provenance/-1/tracking_run", "another"))
    for gone in full.metrics.glob("sweep/*"):
        gone.unlink()
    write_figures(folder, results)
    assert not (folder / "templates-capsules-digits.png").exists(), "it showed a result that was made anew since"
    assert (folder / "reconstructions-capsules-digits.png").exists()
    assert not (folder / "sweep-capsules-digits.svg").exists(), "of results that are gone"
