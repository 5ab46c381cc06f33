"""Training on a second device: it gives what the CPU gives, and its steps never wait. The device is pretended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pretended_gpu import CPU, GPU, OnGPU, pretended_gpu
from small import CROPPED, SCAE_SIZE, SIZE, STILL, small_run, squares, training
from torch import Tensor

from pipeline.learning.augmentation import augment
from pipeline.learning.averaging import Average
from pipeline.learning.gradient import Task, Trained, group_replicas, train
from pipeline.learning.optimisers import build_optimiser
from pipeline.learning.replicas import Replicas, clip, gradient_norms
from pipeline.params import Run
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
    "cnn, mixup": {"variant": "cnn", "model": {"mixup": 0.2}},
}
"""Changes of small runs by name; the name is the variant if there is no other."""

TRAINED = ["generative", "generative, full posterior", "vae", "scae", "capsnet", "variational Bayes", "cnn, mixup"]
"""Those that are trained for two epochs, with what happens between steps."""

WARPED = CROPPED.model_copy(
    update={"rotation": 15.0, "scale": 0.1, "aspect": 0.1, "shear": 0.1, "shift": 2.0, "gamma": 0.1}
)


def run_of(case: str) -> tuple[Run, int]:
    """A small run, its images warped, and their size."""
    changes = CASES[case]
    run = small_run(changes.get("variant", case))
    model = run.model.model_validate({**run.model.model_dump(), **changes.get("model", {})})
    augmentation = WARPED if run.augmentation == CROPPED else STILL.model_copy(update={"rotation": 30.0, "shift": 2.0})
    size = SCAE_SIZE if run.variant == "scae" else SIZE
    return run.model_copy(update={"model": model, "augmentation": augmentation}), size


@pytest.mark.slow
@pytest.mark.parametrize("case", TRAINED)
def test_stacked_seeds_learn_the_same_on_a_gpu(case: str) -> None:
    run, size = run_of(case)
    data = squares(size=size)
    groups = group_replicas(2, torch.device("cuda"), build_model(run, size).stackable)

    def trained(device: torch.device) -> Trained:
        settings = training(averaging=0.1 if run.variant == "cnn" else 0.0)
        parts = data.part("train"), data.part("validation")
        task = Task(lambda: build_model(run, size), settings, run.augmentation, *parts)
        return train(task, [3, 4], device, groups=groups)

    expected = trained(CPU)
    with pretended_gpu():
        found = trained(GPU)
        assert all(isinstance(value, OnGPU) for value in found.parameters.values())
        weights = {name: value.cpu() for name, value in found.parameters.items()}
    # Small kernels of the CPU add in another order than PyTorch's operators do.
    torch.testing.assert_close(weights, expected.parameters, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_a_training_step_never_waits_for_a_gpu(case: str) -> None:
    (run, size), batch = run_of(case), 6
    n = 2 if build_model(run, size).stackable else 1
    with pretended_gpu() as waits:
        replicas = Replicas(lambda: build_model(run, size), range(n), GPU)
        optimiser = build_optimiser(training(optimiser=run.training.optimiser), list(replicas.trained.values()))
        average = Average(replicas.trained, 0.1)
        generators = [torch.Generator(GPU).manual_seed(seed) for seed in range(n)]
        images, labels = (torch.from_numpy(part).to(GPU) for part in squares(size=size).part("train"))
        noise = torch.stack([replicas.skeleton.draw_noise((batch,), g, GPU) for g in generators])
        order = torch.arange(n * batch, device=GPU).view(n, batch)
        time = torch.tensor(0.5, device=GPU)
        for step in (1, 2):
            del waits[:]  # the first step moves constants to the device
            seen = augment(images[order], run.augmentation, generators)
            gradients, metrics = replicas.gradients(seen, noise, time, labels[order])
            norms = gradient_norms(gradients)
            clip(gradients, norms, 1.0)
            for name, parameter in replicas.trained.items():
                parameter.grad = gradients[name]
            optimiser.step()
            average.update(step)
        assert waits == []
        assert all(isinstance(each, OnGPU) for each in [*gradients.values(), *metrics.values(), norms])


# ---- the pretended GPU itself


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: x + torch.ones(3),
        lambda x: x @ torch.ones(3, 3),
        lambda x: torch.stack([x, torch.ones(3, 3)]),
        lambda x: torch.stack([x.sum(), torch.tensor(1.0)]),
        lambda x: torch.ones(3)[x[0].long()],
        lambda x: x.new_zeros(3).index_select(0, torch.tensor([1])),
        lambda x: torch.func.vmap(torch.mul, (0, None))(x, torch.ones(3)),
        lambda x: torch.nn.Linear(3, 2)(x),
        lambda x: x.numpy(),
    ],
)
def test_tensors_of_two_devices_do_not_mix(wrong: Callable[[Tensor], object]) -> None:
    with pretended_gpu():
        x = torch.ones(3, 3, device=GPU)
        with pytest.raises((RuntimeError, TypeError), match=r"same device|numpy"):
            wrong(x)


@pytest.mark.parametrize(
    "waiting",
    [
        lambda x: x.sum().item(),
        lambda x: bool((x > 0).all()),
        lambda x: x[x > 0],
        lambda x: x.nonzero(),
        lambda x: x.cpu(),
        lambda x: torch.ones(3).to(GPU),
        lambda x: torch.tensor([1.0, 2.0], device=GPU),
        lambda x: x.copy_(torch.ones(3, 3)),
        lambda x: torch.ones(3).copy_(x[0]),
    ],
)
def test_waiting_is_noted(waiting: Callable[[Tensor], object]) -> None:
    with pretended_gpu() as waits:
        x = torch.ones(3, 3, device=GPU)
        assert waits == []
        waiting(x)
        assert len(waits) == 1


def test_it_computes_what_the_cpu_computes() -> None:
    def computed(device: torch.device) -> list[Tensor]:
        generator = torch.Generator(device).manual_seed(1)
        x = torch.rand(4, 3, generator=generator, device=device)
        w = torch.rand(3, 2, generator=generator, device=device).requires_grad_()
        (x @ w).square().sum().backward()
        assert w.grad is not None
        y = x.clone()
        y[1].mul_(3)  # through a view
        y[[0, 2]] = 5.0
        z = torch.func.vmap(torch.func.grad(lambda a, b: (a * b).sum()))(x, y)
        layer = torch.nn.Linear(3, 2)
        with torch.no_grad():
            layer.weight.fill_(0.5), layer.bias.fill_(1.0)
        return [x.cpu(), w.grad.cpu(), y.cpu(), z.cpu(), layer.to(device).double()(x.double()).detach().cpu()]

    expected = computed(CPU)
    with pretended_gpu():
        found = computed(GPU)
    for wanted, value in zip(expected, found, strict=True):
        torch.testing.assert_close(value, wanted)
