"""Figures: every one that the results give, the same bytes each time, no words on top of each other."""

from __future__ import annotations

import itertools
import shutil
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import pytest
from made_up import Writer, with_evidence, with_scae
from made_up_report import Report
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from recorded import recorded
from records import dump_record, load_record
from small import run_on

from pipeline import report
from pipeline.drawing import pictures, style
from pipeline.drawing.drawings import Drawing, Written
from pipeline.page.figures import incomplete, on_disk, write_figures
from pipeline.params import Params, parse_params
from pipeline.report.runs import learning_curves
from pipeline.results.reading import ResultError
from pipeline.systems.generative.report.comparison import groups
from pipeline.systems.generative.report.curves import in_order, mean_over_replicas, name_of_test
from pipeline.systems.generative.report.figures_of_failures import template_copies

PLOTTED = list(itertools.product(("train", "validation"), ("bound", "pixel_error")))
ALL = {
    "accuracy-capsules-digits.svg",
    "reconstructions-capsules-digits.png",
    "optimisation-capsules-digits.svg",
    "arrangements-capsules-digits.png",
    "templates-capsules-digits.png",
    "objects-capsules-digits.png",
    "prior-capsules-digits.png",
    "sweep-capsules-digits.svg",
    "equivariance-capsules-digits.svg",
    "copies-capsules-digits.png",
    "part-use-capsules-digits.png",
    "sensitivity-capsules-digits.svg",
    "learning-capsules-digits.svg",
    "learning-vae-digits.svg",
    "turning-capsules-digits.png",
    "systems-parameters.svg",
}


def drawings_of(writer: Writer, params: Params) -> list[Drawing]:
    """What results made with these parameters give."""
    return list(report.draw(recorded(writer.results, params), Written()))


def test_every_figure_is_drawn_and_has_its_words(report: Report, full: Writer, params: Params) -> None:
    assert {path.name for path in report.figures.iterdir()} == ALL
    drawings = drawings_of(full, params)
    assert {drawing.file for drawing in drawings} == ALL
    for drawing in drawings:
        assert drawing.title
        assert drawing.alt
        assert drawing.caption.endswith(".")
        assert drawing.caption.count(". ") <= 2  # at most three sentences
        assert drawing.records


def test_the_same_results_give_the_same_bytes_and_leave_matplotlib_as_it_was(
    report: Report, full: Writer, params: Params
) -> None:
    before = dict(matplotlib.rcParams)
    for drawing in drawings_of(full, params):
        content = style.to_bytes(drawing.figure(), drawing.kind)
        assert content == (report.figures / drawing.file).read_bytes()
    assert dict(matplotlib.rcParams) == before


def test_files_name_no_address_but_those_of_the_svg_standard(report: Report) -> None:
    for path in report.figures.glob("*.svg"):
        assert path.read_text(encoding="utf-8").replace("http://www.w3.org/", "").count("://") == 0


def words(figure: Figure) -> list[tuple[str, Any]]:
    """Every visible text of a figure with its box, in pixels."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    left_out = undrawn_ticks(figure)
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    return [(text.get_text(), text.get_window_extent(renderer)) for text in texts if id(text) not in left_out]


def undrawn_ticks(figure: Figure) -> set[int]:
    """Labels of ticks that lie outside their axis' limits, which matplotlib does not draw."""
    hidden = set()
    for axes in figure.axes:
        for axis, (low, high) in ((axes.xaxis, sorted(axes.get_xlim())), (axes.yaxis, sorted(axes.get_ylim()))):
            hidden |= {
                id(label)
                for tick in axis.get_major_ticks()
                if not low <= tick.get_loc() <= high
                for label in (tick.label1, tick.label2)
            }
    return hidden


def test_no_words_overlap_or_leave_the_figure(full: Writer, params: Params) -> None:
    for drawing in drawings_of(full, params):
        with matplotlib.rc_context(style.RC):
            figure = drawing.figure()
            boxes = words(figure)
        assert boxes, drawing.name
        page = figure.bbox
        for text, box in boxes:
            inside = box.x0 >= -1 and box.y0 >= -1 and box.x1 <= page.x1 + 1 and box.y1 <= page.y1 + 1
            assert inside, f"{drawing.name}: '{text}' leaves the figure"
        for (one, a), (other, b) in itertools.combinations(boxes, 2):
            apart = a.x1 <= b.x0 + 1 or b.x1 <= a.x0 + 1 or a.y1 <= b.y0 + 1 or b.y1 <= a.y0 + 1
            assert apart, f"{drawing.name}: '{one}' and '{other}' overlap"


def test_letters_are_legible_at_print_width(full: Writer, params: Params) -> None:
    for drawing in drawings_of(full, params):
        figure = drawing.figure()
        assert figure.get_size_inches()[0] <= style.WIDTH + 0.01
        sizes = {text.get_fontsize() for text in figure.findobj(Text) if text.get_text().strip()}
        assert min(sizes) >= 7


def test_what_was_not_executed_is_left_out(writer: Writer, params: Params) -> None:
    writer.train("vae-digits")
    written = write_figures(writer.root / "figures", recorded(writer.results, params))
    assert [path.name for path in written.files] == ["learning-vae-digits.svg"]
    assert not written.missing, "what there is no record of is listed by the stage"


def test_missing_arrays_and_tables_of_a_record_are_named(full: Writer, params: Params) -> None:
    shutil.rmtree(full.arrays)
    (full.metrics / "train" / "vae-digits.csv").unlink()
    (full.metrics / "optimise" / "capsules-digits.csv").unlink()
    written = write_figures(full.root / "figures", recorded(full.results, params))
    assert {path.name for path in written.files} == {
        "accuracy-capsules-digits.svg",
        "sweep-capsules-digits.svg",
        "equivariance-capsules-digits.svg",
        "sensitivity-capsules-digits.svg",
        "learning-capsules-digits.svg",
        "systems-parameters.svg",
    }
    assert written.missing == [
        "turn/capsules-digits (its examples)",
        "optimise/capsules-digits (its examples)",
        "optimise/capsules-digits (its table)",
        "evaluate/capsules-digits (its examples)",
        "sweep/capsules-digits-0 (its examples)",
        "sweep/capsules-digits-45 (its examples)",
        "sweep/capsules-digits-180 (its examples)",
        "train/vae-digits (its table)",
    ]


def test_a_picture_stays_while_its_arrays_are_away_and_its_result_is_the_same(full: Writer, params: Params) -> None:
    folder = full.root / "figures"
    results = recorded(full.results, params)
    write_figures(folder, results)
    order = [each.name for each in on_disk(folder, results)]
    assert {f"{each.name}.{each.kind}" for each in on_disk(folder, results)} == ALL
    content = (folder / "templates-capsules-digits.png").read_bytes()
    shutil.rmtree(full.arrays)
    written = write_figures(folder, results)
    assert "evaluate/capsules-digits (its examples)" in incomplete(folder) == written.missing
    assert {path.name for path in folder.iterdir()} == ALL
    assert [each.name for each in on_disk(folder, results)] == order
    assert (folder / "templates-capsules-digits.png").read_bytes() == content
    path = results.records / "evaluate" / "capsules-digits.json"
    record = load_record(path)
    record["provenance"][-1]["tracking_run"] = "another"
    dump_record(path, record)
    write_figures(folder, results)
    assert not (folder / "templates-capsules-digits.png").exists(), "it showed a result that was made anew since"
    assert (folder / "reconstructions-capsules-digits.png").exists()


def test_a_corrupt_file_of_words_is_refused_by_name(full: Writer, params: Params) -> None:
    folder = full.root / "figures"
    for text in ("[]", "[" * 100_000):
        folder.with_suffix(".json").write_text(text)
        with pytest.raises(ResultError, match=r"figures\.json is corrupt"):
            write_figures(folder, recorded(full.results, params))


def with_slots(values: dict[str, Any]) -> Params:
    """The made-up parameters with a second capsule run, whose parts stand in any slot, trained and swept."""
    run = values["runs"]["capsules-digits"]
    run["model"] |= {"seeding": None}  # which needs parts in their own slots
    slots = run | {"model": run["model"] | {"slots": "any"}}
    sweep = values["sweep"] | {"runs": [*values["sweep"]["runs"], "capsules-slots"]}
    named = with_evidence(values, "generative", sweep={"own_slots": "capsules-digits", "any_slots": "capsules-slots"})
    return parse_params(named | {"runs": values["runs"] | {"capsules-slots": slots}, "sweep": sweep})


def test_a_run_with_parts_in_any_slot_is_drawn_beside_the_one_it_differs_from(
    full: Writer, values: dict[str, Any]
) -> None:
    params = with_slots(values)
    assert not [each for each in drawings_of(full, params) if each.name.startswith("beyond")]
    full.sweep("capsules-slots", {"t0": {0: 0.9, 45: 0.8, 180: 0.6}, "t0_A0": {0: 0.9, 45: 0.9, 180: 0.7}})
    drawings = {each.name: each for each in drawings_of(full, params)}
    drawing = drawings["beyond-capsules-slots"]
    assert {record["item"] for record in drawing.records} == {
        f"{run}-{angle}" for run in ("capsules-digits", "capsules-slots") for angle in (0, 45, 180)
    }
    (axes,) = drawing.figure().axes
    drawn = [np.asarray(line.get_ydata(), float) for line in axes.get_lines()]
    lines = {tuple(y.round(6)) for y in drawn if len(y) == 3 and np.isfinite(y).all()}
    assert lines == {(93.0, 74.0, 47.0), (90.0, 80.0, 60.0)}
    assert "sweep-capsules-slots" in drawings


def test_figures_of_runs_that_are_gone_are_removed(report: Report, full: Writer, params: Params) -> None:
    folder = shutil.copytree(report.figures, full.root / "figures")
    for path in full.metrics.glob("*/vae-digits*"):
        path.unlink()
    write_figures(folder, recorded(full.results, params))
    assert {path.name for path in folder.iterdir()} == ALL - {"learning-vae-digits.svg"}


def test_a_corrupt_file_stops_the_drawing_and_is_named(full: Writer, params: Params) -> None:
    path = full.arrays / "evaluate" / "capsules-digits" / "examples.npz"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ResultError, match=str(path)):
        write_figures(full.root / "figures", recorded(full.results, params))


def test_what_evidence_compares_is_shown_together_and_every_other_run_alone() -> None:
    names = ["a", "capsules", "scae", "vae"]
    assert groups({"capsules": "capsules", "vae": "vae"}, names) == [["capsules", "vae"], ["a"], ["scae"]]
    assert groups({"vae": "vae", "scae": "scae"}, names)[0] == ["scae", "vae"], "in one order"
    assert groups({"capsules": "gone"}, ["a"]) == [["a"]]
    assert groups({}, []) == []


def test_the_caption_says_what_images_runs_shown_together_were_trained_on(full: Writer, values: dict[str, Any]) -> None:
    full.scae()
    values = with_scae(values, canvas=40)
    values["runs"]["scae-digits"]["augmentation"] = {"rotation": 0.0, "shift": 6.0, "whole_pixels": False}
    params = parse_params(values)
    drawings = {drawing.name: drawing for drawing in drawings_of(full, params)}
    differs = "(capsules-digits was trained on 28x28 pixels, scae-digits on 40x40 pixels shifted by up to 6)."
    for name in ("sweep-capsules-digits", "accuracy-capsules-digits"):
        assert drawings[name].caption.endswith(differs)
        assert "SCAE: posterior presences" in drawings[name].alt
        figure = drawings[name].figure()
        assert "SCAE: posterior" in " ".join(text.get_text() for text in figure.legends[0].get_texts())
        with matplotlib.rc_context(style.RC):
            boxes = words(drawings[name].figure())
        assert all(box.x0 >= -1 and box.x1 <= figure.bbox.x1 + 1 for _, box in boxes), "nothing leaves the figure"


def test_a_model_without_a_bound_shows_its_loss(full: Writer, values: dict[str, Any]) -> None:
    full.scae()
    drawings = drawings_of(full, parse_params(with_scae(values)))
    drawing = next(each for each in drawings if each.name == "learning-scae-digits")
    assert drawing.caption.startswith("Loss and pixel error should fall")
    assert "loss and pixel error of scae-digits" in drawing.alt
    assert drawing.figure().axes[0].get_ylabel() == "loss (nats per image)"


def test_classifiers_have_no_figures_here(full: Writer, values: dict[str, Any]) -> None:
    values["runs"]["net"] = run_on("capsnet", "digits")
    full.train("net", objective="loss")
    full.evaluate("net", ["t0"])
    assert {drawing.file for drawing in drawings_of(full, parse_params(values))} == ALL


def test_replicas_that_stop_early_shorten_the_mean_only(full: Writer, params: Params) -> None:
    columns = ["replica", "epoch", "train_bound", "validation_bound", "train_pixel_error", "validation_pixel_error"]
    table = full.results.table("train", "capsules-digits", columns)
    assert table is not None
    full.table("train", "capsules-digits", table[(table["replica"] == 0) | (table["epoch"] <= 25)])
    drawings = drawings_of(full, params)
    figure = next(each.figure() for each in drawings if each.name == "learning-capsules-digits")
    thick = max(figure.axes[0].get_lines()[:3], key=lambda line: line.get_linewidth())
    assert thick.get_xdata()[-1] == 25
    assert max(line.get_xdata()[-1] for line in figure.axes[0].get_lines()[:3]) == 40


def test_pairs_that_are_not_similar_are_not_shown(full: Writer, params: Params) -> None:
    drawing = next(each for each in drawings_of(full, params) if each.name == "copies-capsules-digits")
    (arrays, threshold) = drawing.figure.args  # type: ignore[attr-defined]
    similar = ["1, 2\n0.99", "3, 4\n0.97", "5, 6\n0.95", "7, 8\n0.93", "9, 10\n0.91"]
    for correlations, shown in ((arrays["pair_correlation"], similar), (np.full(8, 0.7), ["1, 2\n0.70"])):
        figure = template_copies({**arrays, "pair_correlation": correlations}, threshold)
        (gallery,) = (axes for axes in figure.findobj(Axes) if axes.get_title(loc="left").startswith("similar pairs"))
        assert [label.get_text() for label in gallery.get_xticklabels()] == shown


def test_the_scale_of_correlations_ends_below_the_smallest_and_the_threshold(full: Writer, params: Params) -> None:
    drawing = next(each for each in drawings_of(full, params) if each.name == "copies-capsules-digits")
    (arrays, threshold) = drawing.figure.args  # type: ignore[attr-defined]
    for smallest, lowest in ((0.62, 0.6), (0.98, 0.85)):
        figure = template_copies({**arrays, "correlation": np.full((16, 16), smallest)}, threshold)
        (image,) = (image for axes in figure.findobj(Axes) for image in axes.get_images() if image.get_array().ndim < 3)
        assert image.norm.vmin == pytest.approx(lowest)


def test_an_axis_leaves_out_a_long_steep_start(full: Writer, params: Params) -> None:
    epochs = np.arange(1, 25)
    settled = 500.0 - 100 / epochs
    for before, low in ((-1000.0, settled[7]), (470.0, 470.0)):
        bound = np.where(epochs <= 5, before, settled)
        table = pd.DataFrame({"replica": 0, "epoch": epochs})
        table = table.assign(**{f"{part}_{metric}": bound for part, metric in PLOTTED})
        bottom, top = learning_curves(table, "bound").axes[0].get_ylim()
        assert low - 2 < bottom < low
        assert settled[-1] < top < settled[-1] + 2


def test_the_jump_where_objects_are_started_from_parts_is_explained(full: Writer, values: dict[str, Any]) -> None:
    model = values["runs"]["capsules-digits"]["model"]
    seeding = {"images": 100, "iterations": 2, "teaching_epochs": 1}
    for changes, jumps in (({"seeding": seeding}, True), ({"seeding": None}, False)):
        model |= {"seeding_epoch": 3, **changes}
        drawings = {drawing.name: drawing for drawing in drawings_of(full, parse_params(values))}
        assert ("After epoch 3 the bound jumps" in drawings["learning-capsules-digits"].caption) == jumps
        assert "jumps" not in drawings["learning-vae-digits"].caption
        assert "bands on the page are one sd over seeds" in drawings["learning-vae-digits"].caption


def test_a_replica_that_has_ended_counts_with_its_last_row() -> None:
    rows = pd.DataFrame(
        {
            "replica": [0, 0, 1, 1, 1],
            "round": [10, 13, 10, 13, 18],
            "evaluations": [10.0, 13.0, 20.0, 26.0, 36.0],
            "seconds": 1.0,
            "bound": [-230.0, -199.0, -290.0, -270.0, -259.0],
        }
    )
    means = mean_over_replicas(rows)
    assert means["bound"].tolist() == pytest.approx([-260.0, -234.5, -229.0])
    assert means["evaluations"].tolist() == pytest.approx([15.0, 19.5, 24.5])


def test_symbols_and_open_markers_are_explained(full: Writer, params: Params) -> None:
    symbols, rows = (
        "(t0: presences of the objects; A0: their poses)",
        "open markers: Table 1 of the paper, in both plots",
    )
    drawings = {drawing.name: drawing for drawing in drawings_of(full, params)}
    assert symbols in drawings["accuracy-capsules-digits"].caption
    assert symbols in drawings["sweep-capsules-digits"].caption
    assert rows in drawings["accuracy-capsules-digits"].caption
    (full.metrics / "evaluate" / "capsules-digits.json").unlink()
    drawings = {drawing.name: drawing for drawing in drawings_of(full, params)}
    assert symbols not in drawings["accuracy-vae-digits"].caption
    assert rows in drawings["accuracy-vae-digits"].caption


def test_the_objects_that_own_an_image_are_counted(full: Writer, params: Params) -> None:
    path = full.arrays / "evaluate" / "capsules-digits" / "examples.npz"
    with np.load(path) as drawn:
        arrays = dict(drawn)
    for owners, words_of_it in ((14, "14 of 16 objects own an image"), (1, "1 of 16 objects owns an image")):
        arrays["object_classes"][owners:] = 0
        np.savez(path, **arrays)
        drawing = next(each for each in drawings_of(full, params) if each.name == "objects-capsules-digits")
        assert words_of_it in drawing.caption


def test_engines_have_their_proper_names(full: Writer, params: Params) -> None:
    drawings = {drawing.name: drawing for drawing in drawings_of(full, params)}
    assert drawings["reconstructions-capsules-digits"].caption.endswith("Engine: Gauss-Newton.")
    drawing = drawings["optimisation-capsules-digits"]
    legend = [text.get_text() for text in drawing.figure().legends[0].get_texts()]
    assert legend[:3] == ["Gauss-Newton", "L-BFGS", "Adam"]


def test_a_picture_of_a_run_that_is_now_drawn_beside_another_is_removed(full: Writer, params: Params) -> None:
    """Its results are the same, but nothing that it needs is away."""
    folder = full.root / "figures"
    away = {path: path.read_bytes() for path in (full.metrics / "sweep").glob("capsules-digits-*.json")}
    for path in away:
        path.unlink()
    write_figures(folder, recorded(full.results, params))
    assert (folder / "sweep-vae-digits.svg").exists()
    for path, content in away.items():
        path.write_bytes(content)
    write_figures(folder, recorded(full.results, params))
    assert {path.name for path in folder.iterdir()} == ALL
    assert {each.name for each in on_disk(folder, recorded(full.results, params))} == {
        name.partition(".")[0] for name in ALL
    }


def test_mosaic_places_each_image_whole_in_its_cell() -> None:
    noise = np.random.default_rng(0)
    grey, colour = noise.random((3, 6, 6)), noise.random((2, 6, 6, 3))
    small = noise.random((3, 3, 3))
    canvas = pictures.mosaic([grey, colour, small], gap=1)
    assert canvas.shape == (20, 20, 3)
    np.testing.assert_allclose(canvas[0:6, 7:13], grey[1][..., None].repeat(3, -1), rtol=1e-6)
    np.testing.assert_allclose(canvas[7:13, 7:13], colour[1], rtol=1e-6)
    assert (canvas[7:13, 14:20] == 1).all()  # no third image in that row
    np.testing.assert_allclose(canvas[14:20:2, 14:20:2, 0], small[2], rtol=1e-6)  # enlarged twofold


def test_many_angles_are_thinned_and_keep_their_ends() -> None:
    angles = np.linspace(-180, 180, 73)
    figure = pictures.over_rotation(angles, [("input", np.zeros((73, 4, 4)))])
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert len(labels) == 13
    assert (labels[0], labels[6], labels[-1]) == ("\N{MINUS SIGN}180°", "0°", "180°")


@pytest.mark.parametrize("parts", [1, 5, 16, 24, 64])
def test_any_number_of_templates_fits(parts: int) -> None:
    figure = pictures.templates(np.zeros((parts, 12, 12)), np.ones((parts, 12, 12)))
    content = style.to_bytes(figure, "png")
    assert content.startswith(b"\x89PNG")


def test_tests_are_named_and_ordered_by_angle() -> None:
    assert in_order(["affine", "rotated_135", "rotated_0", "rotated_45", "affine"]) == [
        "rotated_0",
        "rotated_45",
        "rotated_135",
        "affine",
    ]
    assert [name_of_test(name) for name in ("rotated_0", "rotated_22.5", "affine")] == ["0°", "±22.5°", "affine"]
