"""One study of capsule regression (document 002)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import typer

from stages.workspace import Workspace, stage

if TYPE_CHECKING:
    from pipeline.results.outcome import Outcome
    from pipeline.systems.regression.settings import RegressionStudy

STUDIES = "pipeline/systems/regression/studies"


def main(name: str) -> None:
    """Run NAME, an entry of `regression` in params.yaml, on its data set."""
    with stage("regression", name) as workspace:
        study = workspace.params.regression[name]
        outcomes, data = run_studies(workspace, study.dataset, {name: study})
        workspace.write(outcomes[name], **data)


def run_studies(
    workspace: Workspace, dataset_name: str, studies: Mapping[str, RegressionStudy]
) -> tuple[dict[str, Outcome], dict[str, Any]]:
    """Run studies of one data set, one after the other.

    Returns:
        outcomes: by the studies' names.
        data: what the provenance says about the data set.

    Raises:
        UserError: the data set does not fit a study.
    """
    from pipeline.compute import prepare
    from pipeline.data.datasets import PARTS
    from pipeline.errors import UserError
    from pipeline.systems.regression.model.fits import checkpoints_in
    from pipeline.systems.regression.model.inputs import Inputs, build_inputs
    from pipeline.systems.regression.studies import Extras, run_study

    device = workspace.choose_device()
    prepare(device)
    dataset, digest = workspace.open_dataset(dataset_name)
    workspace.run.log_dataset(dataset_name, dataset.label, digest)
    images = {part: dataset.part(part)[0] for part in PARTS}

    @cache
    def inputs(features: int) -> Inputs:
        return build_inputs(dataset, features, device)

    outcomes = {}
    for name, study in studies.items():
        title = workspace.label if name == workspace.item else f"{workspace.label}, {name}"
        # Fits are kept by the code of their own study, so that an edit of one repeats no other's in a set.
        code = workspace.own_code(STUDIES, "__init__.py", f"{study.study}.py")
        common = {"data": digest, "features": study.features, "device": device.type}
        keep_at = checkpoints_in(workspace.checkpoint_folder(), code, **common)
        try:
            outcomes[name] = run_study(inputs(study.features), study, Extras(images, keep_at, title))
        except ValueError as error:
            raise UserError(f"{name}: {error}") from None
    return outcomes, {"dataset_label": dataset.label, "data_sha256": digest}


if __name__ == "__main__":
    typer.run(main)
