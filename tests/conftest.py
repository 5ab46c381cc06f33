"""What every test stands on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pipeline.data.datasets import Dataset
    from pipeline.systems.generative.model.generative_model import GenerativeModel


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests go first, so that no process is left alone with one at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(autouse=True)
def outside_of_any_reproduction(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test feeds MLflow unless it says so, and none believes that DVC started it."""
    monkeypatch.setenv("CAPSULES_MLFLOW", "off")
    for name in ("DVC_ROOT", "DVC_STAGE", "DVC_EXP_NAME", "MLFLOW_TRACKING_URI", "CAPSULES_MIRROR", "CAPSULES_COMMIT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    """A test draws the same numbers alone and after any other."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(0)


@pytest.fixture(autouse=True)
def pyro_checks() -> Iterator[None]:
    """Where Pyro is used its checks are on, whatever an earlier test or the code under test did."""
    pyro = sys.modules.get("pyro")
    if pyro is not None:
        pyro.enable_validation(True)
    yield
    if pyro is not None:
        pyro.enable_validation(True)


@pytest.fixture
def dataset() -> Dataset:
    """Small images, enough of them to fit probes on."""
    from small import squares

    return squares(train=60, validation=24, test=25)


@pytest.fixture
def capsules() -> GenerativeModel:
    """A small model, not trained; its features still tell the squares' places."""
    import torch
    from small import SIZE, small_run

    from pipeline.systems import build_model
    from pipeline.systems.generative.model.generative_model import GenerativeModel

    torch.manual_seed(0)
    model = build_model(small_run(), SIZE)
    assert isinstance(model, GenerativeModel)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model.eval()
