import pytest
import torch
from small import SIZE, small_run, squares

from pipeline.data.datasets import Dataset
from pipeline.systems import build_model
from pipeline.systems.generative.model.generative_model import GenerativeModel


@pytest.fixture
def dataset() -> Dataset:
    return squares(train=60, validation=24, test=25)


@pytest.fixture
def capsules() -> GenerativeModel:
    """A small model, not trained; its features still tell the squares' places."""
    torch.manual_seed(0)
    model = build_model(small_run(), SIZE)
    assert isinstance(model, GenerativeModel)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model.eval()
