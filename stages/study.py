"""Run a study of any kind in `pipeline/studies` or of a system: on trained models, or with trainings of its own."""

import typer

from stages.workspace import stage


def main(kind: str, item: str) -> None:
    """Measure ITEM of KIND, a section of params.yaml. An item of <KIND>_sets runs several short studies in turn."""
    with stage(kind, item) as workspace:
        from pipeline.results.outcome import combined
        from pipeline.studies import SETS, study_of

        context = workspace.context
        if not kind.endswith(SETS):
            workspace.write(study_of(kind).measure(context))
            return
        parts = {name: context.part(name, settings) for name, settings in context.settings.studies.items()}
        outcomes = {name: study_of(kind).measure(part) for name, part in parts.items()}
        labels = {name: part.data for name, part in parts.items()}
        workspace.write(combined(outcomes, labels))


if __name__ == "__main__":
    typer.run(main)
