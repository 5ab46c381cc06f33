"""Run a study of `pipeline/studies` or of a system's package. A study uses trained models, or trains its own."""

import typer

from stages.workspace import stage


def main(kind: str, item: str) -> None:
    """Run ITEM of the section KIND of params.yaml. If KIND ends with _sets, ITEM has several short studies."""
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
