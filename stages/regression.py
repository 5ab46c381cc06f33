"""One experiment on capsule regression (document 002)."""

from __future__ import annotations

import typer

from stages.workspace import stage


def main(name: str) -> None:
    """Run NAME, an entry of `regression` in params.yaml, on its data set."""
    with stage("regression", name) as workspace:
        from collections.abc import Iterable

        from tqdm import tqdm

        from pipeline.compute import choose_device, prepare
        from pipeline.data.datasets import PARTS
        from pipeline.errors import UserError
        from pipeline.params import (
            ConvergenceStudy,
            DistortedStudy,
            ExactnessStudy,
            GridStudy,
            OnlineStudy,
            RidgeStudy,
            SizesStudy,
        )
        from pipeline.regression.fits import checkpoints_in
        from pipeline.regression.inputs import build_inputs
        from pipeline.regression.studies import (
            convergence,
            distorted,
            exactness,
            grid,
            online,
            ridge,
            sizes,
            starts,
        )

        study = workspace.params.regression[name]
        device = choose_device(workspace.params.device)
        prepare(device)
        dataset, digest = workspace.open_dataset(study.dataset)
        workspace.run.log_dataset(study.dataset, dataset.label, digest)
        inputs = build_inputs(dataset, study.features, device)
        images = {part: dataset.part(part)[0] for part in PARTS}
        keep_at = checkpoints_in(workspace.resume_folder(), data=digest, features=study.features, device=device.type)

        def bar(items: Iterable[int], unit: str = "batch") -> Iterable[int]:
            return tqdm(items, desc=workspace.label, unit=unit)

        try:
            match study:
                case GridStudy():
                    cells = lambda items: tqdm(items, desc=workspace.label, unit="fit")  # noqa: E731
                    outcome = grid.run(inputs, images, study, keep_at, cells)
                case ConvergenceStudy():
                    outcome = convergence.run(inputs, study)
                case ExactnessStudy():
                    outcome = exactness.run(inputs, study, keep_at)
                case OnlineStudy():
                    outcome = online.run(inputs, study)
                case RidgeStudy():
                    outcome = ridge.run(inputs, study, keep_at)
                case SizesStudy():
                    outcome = sizes.run(inputs, study, keep_at)
                case DistortedStudy():
                    outcome = distorted.run(inputs, images["train"], study, keep_at, bar)
                case _:
                    outcome = starts.run(inputs, study)
        except ValueError as error:
            raise UserError(f"{name}: {error}") from None

        provenance = workspace.provenance(dataset_label=dataset.label, data_sha256=digest)
        workspace.write_outcome(outcome, study.study, provenance)


if __name__ == "__main__":
    typer.run(main)
