"""A training step runs where the model is: nothing is made on the CPU, and nothing waits for numbers.

The device is torch's `meta`, which computes shapes alone: to mix its tensors with the CPU's is an error there, and so
is whatever depends on a number, for which a GPU would have to be waited for.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small import SCAE_SIZE, SIZE, small_run, training

from pipeline.learning.averaging import Average
from pipeline.learning.optimisers import build_optimiser
from pipeline.learning.train import clip
from pipeline.systems import build_model

CASES: dict[str, dict[str, Any]] = {
    "generative": {},
    "generative, any slot": {"variant": "generative", "model": {"slots": "any"}},
    "generative, full posterior": {"variant": "generative", "model": {"pose_posterior": "gaussian"}},
    "vae": {},
    "scae": {},
    "capsnet": {},
    "matrix_capsules": {},
    "vector poses": {"variant": "matrix_capsules", "model": {"pose": "vector"}},
    "mixing proportions, mixup": {"variant": "matrix_capsules", "model": {"activation": "mixing", "mixup": 0.2}},
    "variational Bayes": {
        "variant": "matrix_capsules",
        "model": {"activation": "bayes", "batch_norm": True, "saving": None, "loss": "softmax"},
    },
    "competition by position, margin loss": {
        "variant": "matrix_capsules",
        "model": {"competition": "position", "loss": "margin"},
    },
    "cnn": {},
}
"""Changes of small runs by name; the name is the variant if there is no other."""


@pytest.mark.parametrize("case", CASES)
def test_a_training_step_stays_on_its_device(case: str) -> None:
    changes, batch = CASES[case], 6
    run = small_run(changes.get("variant", case), model=changes.get("model", {}))
    size = SCAE_SIZE if run.variant == "scae" else SIZE
    model = build_model(run, size)
    noise = model.draw_noise((batch,), torch.Generator()).to("meta")
    model = model.to("meta").train()
    trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
    optimiser = build_optimiser(training(optimiser=run.training.optimiser), list(trained.values()))
    average = Average(trained, 0.1)
    seen = run.augmentation.seen_size(size)
    images = torch.empty(batch, run.channels, seen, seen, device="meta")
    labels, epoch = torch.empty(batch, dtype=torch.long, device="meta"), torch.empty((), device="meta")

    loss, metrics = model(images, noise, epoch, labels)
    gradients = torch.autograd.grad(loss, list(trained.values()))
    norm = clip(gradients, 1.0)
    optimiser.step(gradients)
    average.update(1)
    assert {each.device.type for each in (loss, norm, *gradients, *metrics.values())} == {"meta"}
