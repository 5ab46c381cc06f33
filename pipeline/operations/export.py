"""Exports a profile's figures, tables and scorecard as a research object crate (RO-Crate).

A crate is a folder with metadata, to cite and archive. Figures are drawn as PDF. If a figure's arrays are missing, the
crate has the file that was drawn last, unless the results have changed since then. Tables are written as CSV and LaTeX.
The metadata of a figure or table are its title and caption, and the results and commits from which it was made.
"""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
from rocrate.rocrate import ROCrate

from pipeline import report
from pipeline.commits import git_state
from pipeline.drawing.drawings import Picture
from pipeline.drawing.table import Table, sources
from pipeline.errors import UserError
from pipeline.files import read_json
from pipeline.layout import Layout
from pipeline.page.figures import on_disk
from pipeline.params import load_params
from pipeline.results.reading import Results


def export(root: Path, folder: Path) -> int:
    """Write the results of the current profile into a new folder. Returns the number of files in it. Raises
    `UserError` if the folder exists, the profile has no scorecard, parameters are invalid, or a result is corrupt.
    """
    if folder.exists():
        raise UserError(f"{folder} exists: name a new folder")
    params = load_params(root / "params.yaml")
    layout = Layout(root, params.profile)
    if not layout.scorecard_path.exists():
        raise UserError(f"profile {params.profile} has no scorecard: run `dvc repro`")
    results = Results(layout.records_folder, layout.arrays_folder, evidence=params.evidence)
    commit, dirty = git_state(root)
    crate = ROCrate()
    crate.name = f"Capsule networks compared with their papers, profile {params.profile}"
    crate.description = f"Figures, tables and claims of commit {commit}{', with uncommitted changes' if dirty else ''}."
    crate.license = "https://spdx.org/licenses/Apache-2.0"

    def add(path: Path, place: str, shows: Picture | Table | None = None) -> None:
        about = {"name": shows.title, "description": f"{shows.caption} {sources(shows.records)}"} if shows else {}
        crate.add_file(path, f"{place}{path.name}", properties=about)

    with TemporaryDirectory() as made:
        for drawing in report.draw(results):
            drawing.write_pdf(path := Path(made, f"{drawing.name}.pdf"))
            add(path, "figures/", drawing)
        for picture in on_disk(layout.figures_folder, results)[0]:
            if not Path(made, f"{picture.name}.pdf").exists():
                add(layout.figures_folder / picture.file, "figures/", picture)
        for table in report.build(results):
            latex = table.shown.to_latex(index=False, escape=True, caption=table.title, label=f"tab:{table.name}")
            for ending, content in ((".csv", table.to_csv()), (".tex", latex)):
                path = Path(made, f"{table.name}{ending}")
                path.write_text(content, encoding="utf-8")
                add(path, "tables/", table)
        claims = Path(made, "scorecard.csv")
        rows = read_json(layout.scorecard_path)
        columns = ("id", "document", "where", "claim", "paper", "ours", "verdict", "dataset", "remarks")
        chosen = [{key: row[key] for key in columns} | {"remarks": "; ".join(row["remarks"])} for row in rows]
        pd.json_normalize(chosen).to_csv(claims, index=False)
        for path in (claims, *(root / name for name in ("CITATION.cff", "LICENSE", "params.yaml", "dvc.lock"))):
            add(path, "")
        try:
            crate.write(folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    return sum(path.is_file() for path in folder.rglob("*"))
