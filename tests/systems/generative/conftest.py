from collections.abc import Callable
from typing import Any

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
def changed(small_params: GenerativeModelParams) -> Callable[..., GenerativeModel]:
    """Makes tiny models in float64 whose parameters are all away from their symmetric start, with other settings."""

    def make(**changes: Any) -> GenerativeModel:
        torch.manual_seed(0)
        model = GenerativeModel(small_params.model_copy(update=changes), SIZE).double()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1)
        return model

    return make


@pytest.fixture
def model(changed: Callable[..., GenerativeModel]) -> GenerativeModel:
    return changed()


@pytest.fixture
def images() -> Tensor:
    return torch.rand(COUNT, 1, SIZE, SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def noise(model: GenerativeModel, images: Tensor) -> Tensor:
    return model.draw_noise((len(images),), torch.Generator().manual_seed(2)).double()
