"""Fixtures of the reports' tests: made-up results in an empty folder, and the parameters that they belong to."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import made_up_matrix
import pytest
from headless import Browser, find_browser
from made_up import Report, Writer, made_up_values, moved_on

from pipeline.params import Params, parse_params


@pytest.fixture
def values() -> dict[str, Any]:
    """Parameters for the made-up results, to be changed and parsed."""
    return made_up_values()


@pytest.fixture
def params(values: dict[str, Any]) -> Params:
    return parse_params(values)


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    """A writer into an empty repository."""
    return Writer(tmp_path)


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Every item of the made-up parameters, and the page of them."""
    writer = Writer(tmp_path_factory.mktemp("report"))
    writer.everything()
    return Report.of(writer, parse_params(made_up_values()))


@pytest.fixture(scope="session")
def marked(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A page with both kinds of films, after the profile has moved on from the results: with notices and marks."""
    writer = Writer(tmp_path_factory.mktemp("marked"))
    writer.everything()
    made_up_matrix.everything(writer)
    values = made_up_matrix.with_matrix(made_up_values())
    return Report.of(writer, parse_params(values), now=moved_on(values))


@pytest.fixture
def full(writer: Writer, report: Report) -> Writer:
    """A writer after every item was written, and not yet drawn."""
    for folder in ("reports/quick/results", "results"):
        shutil.copytree(report.writer.root / folder, writer.root / folder)
    return writer


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests; modules that use it are skipped where none is installed."""
    program = find_browser()
    assert program is not None
    with Browser(program, tmp_path_factory.mktemp("browser")) as opened:
        yield opened
