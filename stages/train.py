"""Train every replica of one run, and write the weights (`models/<run>/`) and the metrics of training."""

import typer

from stages.workspace import stage


def main(run: str) -> None:
    """Train RUN, an entry of `runs` in params.yaml, on its preprocessed data set."""
    with stage("train", run) as workspace:
        from pipeline.classification.settings import CroppedRun
        from pipeline.data.holdout import watch_tests
        from pipeline.layout import model_folder
        from pipeline.learning.runs import outcome, save_run

        context, settings = workspace.context, workspace.params.runs[run]
        dataset = context.dataset(settings.dataset)
        watched = watch_tests(dataset, settings.watched) if isinstance(settings, CroppedRun) else None
        trained, models = context.train(None, settings, watched=watched)
        size, digest = dataset.images.shape[-1], context.sha256(settings.dataset)
        code = context.training_code(settings.variant)
        save_run(model_folder(workspace.root, run), run, settings, size, digest, code, trained)
        workspace.write(outcome(trained, models[0]))


if __name__ == "__main__":
    typer.run(main)
