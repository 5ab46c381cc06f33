"""Errors that others published: each with its source, in the range of percent and of millions of images."""

from __future__ import annotations

from pipeline.results.public_curves import load_public_curves


def test_every_curve_has_a_source_and_values_that_can_be() -> None:
    curves = load_public_curves()
    assert len({curve.name for curve in curves}) == len(curves) >= 10
    for curve in curves:
        assert any(word in curve.source for word in ("github.com/", "arXiv:")), curve.name
        images, errors = zip(*curve.points, strict=True)
        assert list(images) == sorted(images)
        assert 0.1 <= images[0] <= images[-1] <= 200
        assert list(errors) == sorted(errors, reverse=True), "the last is the lowest"
        assert 0.5 < errors[-1] <= errors[0] < 80, "five classes: a guess is wrong in 80 %"
        assert curve.read != "read off a plot" or curve.note
