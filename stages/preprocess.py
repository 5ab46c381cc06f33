"""Build one data set, `data/processed/<dataset>.npz`, and an image that shows examples."""

import typer

from stages.workspace import stage


def main(dataset: str) -> None:
    """Read the source files of DATASET, split the data into parts, and write one npz file that loads without pickle."""
    with stage("preprocess", dataset) as workspace:
        from pipeline.data.datasets import PARTS, save_dataset
        from pipeline.data.published import build_dataset
        from pipeline.drawing.pictures import preview
        from pipeline.drawing.style import to_bytes
        from pipeline.files import sha256, write_bytes
        from pipeline.layout import dataset_path, raw_folder

        params = workspace.params.datasets[dataset]
        built = build_dataset(dataset, params, raw_folder(workspace.root, params.source))
        path = dataset_path(workspace.root, dataset)
        picture = workspace.reports_folder / "previews" / f"{dataset}.png"
        save_dataset(path, built)
        write_bytes(picture, to_bytes(preview(built), "png"))
        workspace.run.log_dataset(dataset, built.label, sha256(path))
        workspace.run.log_artifact(picture, "previews")
        print(f"{built.label}: {', '.join(f'{len(built.split[part]):,} {part}' for part in PARTS)}")


if __name__ == "__main__":
    typer.run(main)
