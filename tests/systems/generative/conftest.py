import pytest
import torch
from small import SIZE, SMALL
from torch import Tensor

from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.generative.settings import GenerativeModelParams

COUNT = 5


@pytest.fixture
def small_params() -> GenerativeModelParams:
    return GenerativeModelParams.model_validate(SMALL)


@pytest.fixture
def model(small_params: GenerativeModelParams) -> GenerativeModel:
    """A tiny model in float64 whose parameters are all away from their symmetric start."""
    torch.manual_seed(0)
    model = GenerativeModel(small_params, SIZE).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


@pytest.fixture
def images() -> Tensor:
    return torch.rand(COUNT, 1, SIZE, SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
