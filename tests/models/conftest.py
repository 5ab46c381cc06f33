import pytest
import torch

from pipeline.models.generative import GenerativeModel
from pipeline.params import GenerativeModelParams

SMALL = {
    "objects": 3, "parts": 4, "template_size": 5, "template_scale": 0.5, "temperature": 0.8, "pixel_sd": 0.2,
    "pose_sd_floor": 0.1, "pose_sd_start": 0.4, "inactive_pose_sd": 0.3, "inactive_pose": "initial",
    "dummy_affinity": 0.05, "dummy_pose_sd": 1.0, "object_presence": 0.2, "channels": 4, "part_features": 5,
    "hidden": 8, "heads": 2, "inducing": 3, "blocks": 1, "code": 6,
    "seeding_epoch": 1, "early_coupling": 0.25, "early_epochs": 2, "ramp_epochs": 2,
}  # fmt: skip


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
