"""Download one source of raw data: `data/raw/<source>/`."""

from __future__ import annotations

import os

import typer

from stages.workspace import stage


def main(source: str) -> None:
    """Get the files of SOURCE from the first mirror that serves them right; CAPSULES_MIRROR names one of your own."""
    with stage("download", source) as workspace:
        from pipeline.data.sources import MIRROR_VARIABLE, fetch

        # DVC empties data/raw/<source> before every run: what a broken download left must lie elsewhere.
        partial = workspace.home / ".cache" / "downloads" / source
        mirror = os.environ.get(MIRROR_VARIABLE)
        files = fetch(source, workspace.raw_folder(source), partial, mirror)
        print(f"{source}: {', '.join(file.name for file in files)}")


if __name__ == "__main__":
    typer.run(main)
