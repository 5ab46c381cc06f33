"""Read one set of your own images, from a folder or an npz file, into `data/raw/<name>/`."""

import typer

from stages.workspace import stage


def main(name: str) -> None:
    """Read and resize the images of NAME, an entry of `own_images` in params.yaml."""
    with stage("own_images", name) as workspace:
        from pipeline.data.datasets import OWN_IMAGES, save_dataset
        from pipeline.data.own_images import read
        from pipeline.layout import raw_folder

        images = read(name, workspace.params.own_images[name], workspace.root)
        save_dataset(raw_folder(workspace.root, name) / OWN_IMAGES, images)


if __name__ == "__main__":
    typer.run(main)
