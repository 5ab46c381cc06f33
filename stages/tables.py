"""Write the tables, the scorecard and the page of a profile: `tables/`, `scorecard.json` and `index.html`."""

import typer

from stages.tracked import log_scorecard
from stages.workspace import stage


def main() -> None:
    """Compare the results of the current profile with the numbers that the documents report."""
    with stage("tables") as workspace:
        from pipeline import report
        from pipeline.files import read_yaml, write_json, write_text
        from pipeline.page.figures import load_figure, on_disk
        from pipeline.page.page import build_page, other_scorecards
        from pipeline.page.scorecard import build_scorecard
        from pipeline.results.claims import load_claims
        from pipeline.results.freshness import by_reason, compare, current_settings
        from pipeline.results.reading import Results

        results = Results(workspace.records_folder, workspace.arrays_folder, evidence=workspace.params.evidence)
        expected = current_settings(workspace.context.graph, workspace.params.model_dump(mode="json"))
        differing = compare(results, expected, publish=workspace.params.publish)
        claims, tables = load_claims(), list(report.build(results))
        profile, folder = workspace.profile, workspace.figures_folder
        rows = build_scorecard(claims, results, drafts=not workspace.params.publish)
        pictures, incomplete = on_disk(folder, results)
        figures = [load_figure(folder, each) for each in pictures]
        others = other_scorecards(workspace.root, profile)
        repository = read_yaml(workspace.root / "CITATION.cff").get("repository-code", "")
        page = build_page(rows, claims, profile, figures, tables, differing, others, incomplete, repository)

        index = workspace.reports_folder / "index.html"
        write_json(workspace.scorecard_path, rows)
        write_text(index, page)
        workspace.tables_folder.mkdir(parents=True, exist_ok=True)  # DVC needs this folder, even if it is empty
        for table in tables:
            write_text(path := workspace.tables_folder / f"{table.name}.csv", table.to_csv())
            workspace.run.log_artifact(path, "tables")
        files = [index, workspace.scorecard_path]
        log_scorecard(workspace.run, rows, files, workspace.params, workspace.commit, workspace.dirty)
        run = sum(row["verdict"] != "not run" for row in rows)
        print(f"{run} of {len(rows)} claims run; the page is {index.relative_to(workspace.root)}")
        for reason, items in by_reason(differing, differing).items():
            print(f"{reason}: {', '.join(items)}")


if __name__ == "__main__":
    typer.run(main)
