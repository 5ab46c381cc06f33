"""Train encoders with Gaussian poses, starting from a trained run and from scratch (document 000, section 2.3)."""

from __future__ import annotations

import typer

from stages.workspace import stage


def main(study: str) -> None:
    """Run STUDY, an entry of `posterior` in params.yaml, from its run's trained weights."""
    with stage("posterior", study) as workspace:
        from collections.abc import Collection

        from pipeline.learning.replicas import Stacked
        from pipeline.learning.runs import of_kind, train_run, trained_models
        from pipeline.results.spread import stack_replicas
        from pipeline.systems.generative.model.generative_model import GenerativeModel
        from pipeline.systems.generative.settings import GenerativeRun
        from pipeline.systems.generative.studies import posteriors
        from pipeline.tracking import Part

        params = workspace.params
        settings = params.posterior[study]
        run = params.runs[settings.run]
        assert isinstance(run, GenerativeRun)  # params.yaml was checked
        device = workspace.choose_device()
        setup = workspace.training_setup(device)
        dataset, digest = workspace.open_dataset(run.dataset)
        size = dataset.images.shape[-1]
        delta = workspace.trained_models(settings.run, GenerativeModel, size, device)[: settings.replicas]
        sds = [posteriors.choose_sds(model, dataset.part("validation")[0], settings, device) for model in delta]
        begin = [posteriors.with_gaussian_poses(model, *sd) for model, sd in zip(delta, sds, strict=True)]

        def trained(
            guide: str, changed: GenerativeRun, start: Stacked | None, frozen: Collection[str]
        ) -> list[GenerativeModel]:
            title, part = f"{workspace.label}, {guide}", Part(workspace.run, guide)
            result = train_run(setup, changed, dataset, digest, part, title, start, frozen)
            return of_kind(GenerativeModel, trained_models(setup, changed, size, result))

        refined, scratch = posteriors.refined(run, settings), posteriors.scratch(run, settings)
        models = {
            "delta": begin,
            "refined": trained("refined", refined, posteriors.stack_models(begin), begin[0].generative_names()),
            "scratch": trained("scratch", scratch, None, ()),
        }
        tables = {
            guide: stack_replicas(
                [posteriors.measure_guide(model, dataset, settings, params.evaluate, device) for model in each]
            )
            for guide, each in models.items()
        }
        settings_trained = {"refined": refined.model_dump(mode="json"), "scratch": scratch.model_dump(mode="json")}
        workspace.write(
            posteriors.outcome(tables, sds, settings_trained),
            step=settings.epochs,
            dataset_label=dataset.label,
            data_sha256=digest,
            seeds=range(run.seed, run.seed + settings.replicas),
            epochs=settings.epochs,
        )


if __name__ == "__main__":
    typer.run(main)
