"""Gaussian posteriors around delta poses: the same encoder, the sds asked for, and settings of equal budgets."""

import dataclasses

import torch
from pyro import poutine
from small import POSTERIOR, SIZE, small_run, training

from pipeline.data.datasets import Dataset
from pipeline.systems.generative.experiments import posteriors as module
from pipeline.systems.generative.experiments.bounds import image_bounds
from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.generative.settings import GenerativeRun, SeedingParams
from pipeline.systems.generative.studies.posterior import PosteriorParams

CPU = torch.device("cpu")
STUDY = PosteriorParams.model_validate({"run": "capsules", **POSTERIOR})


def test_gaussians_stand_around_the_delta_poses_with_the_sds_asked_for(capsules: GenerativeModel) -> None:
    gaussian = module.with_gaussian_poses(capsules, 0.03, 0.2)
    images = torch.rand(4, 1, SIZE, SIZE)
    before, after = capsules.encode(images), gaussian.encode(images)
    for field in dataclasses.fields(before):
        torch.testing.assert_close(getattr(before, field.name), getattr(after, field.name))
    trace = poutine.trace(gaussian.guide).get_trace(images, gaussian.draw_noise((4,), torch.Generator(), "cpu"))
    parts, objects = trace.nodes["parts"]["fn"].A.sd, trace.nodes["A0"]["fn"].base_dist.sd
    torch.testing.assert_close(parts, torch.full_like(parts, 0.03))
    torch.testing.assert_close(objects, torch.full_like(objects, 0.2))
    again = module.with_gaussian_poses(capsules, 0.03, 0.2)
    for name, value in gaussian.named_parameters():
        assert torch.equal(value, dict(again.named_parameters())[name]), "a training from here finds itself again"


def test_validation_images_choose_the_sds(capsules: GenerativeModel, dataset: Dataset) -> None:
    study = STUDY.model_copy(update={"sd_grid": [0.001, 0.05, 3.0]})
    images = dataset.part("validation")[0]
    chosen = module.choose_sds(capsules, images, study, CPU)

    def elbo(sds: tuple[float, float]) -> float:
        model = module.with_gaussian_poses(capsules, *sds)
        return float(image_bounds(model, images, study.grid_samples, study.seed, CPU)["elbo"].mean())

    others = [(part, of) for part in study.sd_grid for of in study.sd_grid if (part, of) != chosen]
    assert all(elbo(chosen) > elbo(other) for other in others)


def test_both_trainings_take_the_same_epochs_in_all() -> None:
    run = small_run(training=training(epochs=5).model_dump())
    assert isinstance(run, GenerativeRun)
    seeding = SeedingParams(images=20, iterations=2, teaching_epochs=1)
    changes = {"final_temperature": 0.5, "seeding": seeding}
    run = run.model_copy(update={"model": run.model.model_copy(update=changes)})
    study = STUDY.model_copy(update={"epochs": 3})
    refined, scratch = module.refined(run, study), module.scratch(run, study)
    assert run.training.epochs + refined.training.epochs == scratch.training.epochs == 8
    assert refined.replicas == scratch.replicas == 1
    assert refined.model.pose_posterior == scratch.model.pose_posterior == "gaussian"
    assert (refined.model.early_coupling, refined.model.temperature) == (1.0, 0.5), "as its training ended"
    assert refined.model.seeding is None, "its objects are those of the model that it starts from"
    assert scratch.model.seeding == seeding
    assert (scratch.model.early_coupling, scratch.model.temperature) == (0.25, 0.8), "as any training begins"
