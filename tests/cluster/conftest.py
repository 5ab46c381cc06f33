"""Workers that all tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from distributed import Client


@pytest.fixture(scope="session")
def client() -> Iterator[Client]:
    """Two workers on this machine."""
    pytest.importorskip("distributed", reason="Dask is not installed: pip install .[cluster]")
    from pipeline.cluster.start import local_client

    with local_client(2) as client:
        client.wait_for_workers(2, timeout=60)
        yield client


@pytest.fixture(autouse=True)
def own_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DVC's files outside of repositories are the test's own."""
    monkeypatch.setenv("DVC_SITE_CACHE_DIR", str(tmp_path / "site"))
    monkeypatch.setenv("DVC_NO_ANALYTICS", "true")
