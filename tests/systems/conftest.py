import pytest
import torch
from small import SMALL

from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.generative.settings import GenerativeModelParams


@pytest.fixture
def small_params() -> GenerativeModelParams:
    return GenerativeModelParams(**SMALL)


@pytest.fixture
def small_model(small_params: GenerativeModelParams) -> GenerativeModel:
    """A tiny model in float64 whose parameters are all away from their symmetric start."""
    torch.manual_seed(0)
    model = GenerativeModel(small_params, image_size=12).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model
