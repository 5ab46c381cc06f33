"""Fixtures of the reports' tests: made-up results in an empty folder, and the parameters that they belong to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from headless import Browser, find_browser
from made_up import Writer, made_up_values
from made_up_report import Report, write_page

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


@pytest.fixture
def full(writer: Writer) -> Writer:
    """A writer after every item was written."""
    writer.everything()
    return writer


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    writer = Writer(tmp_path_factory.mktemp("report"))
    writer.everything()
    params = parse_params(made_up_values())
    content = write_page(writer, params)
    folder = writer.root / "reports" / "quick"
    (folder / "index.html").write_text(content, encoding="utf-8")
    return Report(writer, params, folder / "figures", folder / "index.html", content)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    """A fresh browser; modules that use it are skipped where none is installed."""
    program = find_browser()
    assert program is not None
    with Browser(program, tmp_path / "browser") as opened:
        yield opened
