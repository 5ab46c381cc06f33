"""Download one source of raw data to `data/raw/<source>/`."""

import os

import typer

from stages.workspace import stage


def main(source: str) -> None:
    """Download the files of SOURCE from the first mirror that has them. CAPSULES_MIRROR may name your own mirror."""
    with stage("download", source) as workspace:
        from pipeline.data.sources import MIRROR_VARIABLE, fetch
        from pipeline.layout import raw_folder

        mirror = os.environ.get(MIRROR_VARIABLE)
        files = fetch(source, raw_folder(workspace.root, source), mirror)
        print(f"{source}: {', '.join(file.name for file in files)}")


if __name__ == "__main__":
    typer.run(main)
