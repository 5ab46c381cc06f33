"""Draw all figures for which the profile has results, in `reports/<profile>/figures/`."""

import typer

from stages.workspace import stage


def main() -> None:
    """Draw the current profile's figures from its results, and write the tables that `dvc plots` draws."""
    with stage("figures") as workspace:
        from pipeline.page.figures import write_figures, write_plots
        from pipeline.results.reading import Results

        results = Results(workspace.records_folder, workspace.arrays_folder, evidence=workspace.params.evidence)
        drawn = write_figures(workspace.figures_folder, results)
        write_plots(workspace.reports_folder / "plots", results)
        for path, earlier in drawn.items():
            workspace.run.log_artifact(path, "figures")
            workspace.run.log_artifact(path, "figures", of_group=True)
            for run in earlier:  # the tracked runs whose results the figure shows
                workspace.run.log_artifact(path, "figures", of_run=run)
        print(f"{len(drawn)} figures in {workspace.figures_folder.relative_to(workspace.root)}")
        if results.missing:
            print(f"not drawn, as their arrays or tables are missing: {', '.join(results.missing)}")
            print("Get the missing results by `dvc pull`, or make them by `dvc repro`.")


if __name__ == "__main__":
    typer.run(main)
