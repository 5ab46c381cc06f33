"""Train encoders with Gaussian poses, from a trained run's and from scratch (document 000, section 2.3)."""

from __future__ import annotations

import typer

from stages.workspace import stage


def main(study: str) -> None:
    """Run STUDY, an entry of `posterior` in params.yaml, from its run's trained weights."""
    with stage("posterior", study) as workspace:
        from collections.abc import Collection

        import pandas as pd

        from pipeline.compute import choose_device
        from pipeline.files import write_json, write_text
        from pipeline.learning.replicas import Stacked
        from pipeline.learning.runs import of_kind, train_run, trained_models
        from pipeline.models.generative import GenerativeModel
        from pipeline.params import GenerativeRun, Run
        from pipeline.studies import posteriors
        from pipeline.studies.summary import flat, nest, spread, stack_replicas
        from pipeline.tracking import Part

        params = workspace.params
        settings = params.posterior[study]
        run = params.runs[settings.run]
        assert isinstance(run, GenerativeRun)  # other parameters are refused
        device = choose_device(params.device)
        dataset, digest = workspace.open_dataset(run.dataset)
        size = dataset.images.shape[-1]
        delta = workspace.trained_models(settings.run, GenerativeModel, size, device)[: settings.replicas]
        sds = [posteriors.choose_sds(model, dataset.part("validation")[0], settings, device) for model in delta]
        begin = [posteriors.with_gaussian_poses(model, *sd) for model, sd in zip(delta, sds, strict=True)]

        def trained(guide: str, changed: Run, start: Stacked | None, frozen: Collection[str]) -> list[GenerativeModel]:
            title, resume, part = f"{workspace.label}, {guide}", workspace.resume_folder(), Part(workspace.run, guide)
            found = train_run(changed, dataset, digest, device, resume, part, title, start, frozen)
            return of_kind(GenerativeModel, trained_models(changed, size, found, device))

        refined, scratch = posteriors.refined(run, settings), posteriors.scratch(run, settings)
        models = {
            "delta": begin,
            "refined": trained("refined", refined, posteriors.stack_models(begin), begin[0].generative_names()),
            "scratch": trained("scratch", scratch, None, ()),
        }

        def measured(guide: str) -> pd.DataFrame:
            tables = [
                posteriors.measure_guide(model, dataset, settings, params.evaluate, device) for model in models[guide]
            ]
            return stack_replicas(tables).assign(guide=guide)

        table = pd.concat([measured(guide) for guide in models])
        metrics = {
            "guide": nest(table, ["guide", "metric"], "value"),
            "delta_sd": {"parts": spread(part for part, _ in sds), "objects": spread(of for _, of in sds)},
            "provenance": [
                workspace.provenance(
                    dataset_label=dataset.label,
                    data_sha256=digest,
                    seeds=range(run.seed, run.seed + settings.replicas),
                    epochs=settings.epochs,
                )
            ],
        }
        write_text(workspace.metrics_path("posterior", study, ".csv"), table.to_csv(index=False, float_format="%.7g"))
        write_json(workspace.metrics_path("posterior", study), metrics)
        workspace.run.log_metrics(flat(metrics), step=settings.epochs)


if __name__ == "__main__":
    typer.run(main)
