"""Write the tables, the scorecard and the page of the profile: `tables/`, `scorecard.json`, `index.html`."""

from __future__ import annotations

import typer

from stages.workspace import stage


def main() -> None:
    """Write what the executed stages of the current profile measured, beside the papers' figures."""
    with stage("tables") as workspace:
        from pipeline.files import write_json, write_text
        from pipeline.page.figures import Written, draw_all
        from pipeline.page.page import build_page, load_figures
        from pipeline.page.scorecard import build_scorecard
        from pipeline.page.tables import build_tables, write_tables
        from pipeline.results.claims import load_claims
        from pipeline.results.reading import Results

        results, params = Results(workspace.records_folder, workspace.arrays_folder), workspace.params
        written, claims = Written(), load_claims()
        tables = build_tables(results, params, written)
        rows = build_scorecard(claims, results, params)
        figures = load_figures(workspace.figures_folder, draw_all(results, params, written))
        page = build_page(rows, claims, params, figures, tables, written.missing)

        write_tables(workspace.tables_folder, tables, written)
        scorecard, index = workspace.reports_folder / "scorecard.json", workspace.reports_folder / "index.html"
        write_json(scorecard, rows)
        write_text(index, page)
        for path in (*written.files, scorecard, index):
            workspace.run.log_artifact(path, "tables" if path in written.files else "")
        run = sum(row["verdict"] != "not run" for row in rows)
        print(f"{run} of {len(rows)} claims run; the page is {index.relative_to(workspace.root)}")
        if written.missing:
            print(f"not executed, so not shown: {', '.join(written.missing)}")


if __name__ == "__main__":
    typer.run(main)
