"""Attacks on matrix capsules and on a convolutional network (document 004, section 6, Figure 3)."""

from __future__ import annotations

import typer

from stages.workspace import stage


def main(study: str) -> None:
    """Attack the trained networks of STUDY, an entry of `attack` in params.yaml."""
    with stage("attack", study) as workspace:
        from pipeline.compute import choose_device
        from pipeline.data.datasets import load_dataset
        from pipeline.errors import UserError
        from pipeline.files import sha256
        from pipeline.learning.runs import load_run
        from pipeline.models.classifier import Classifier
        from pipeline.params import CropParams
        from pipeline.studies.adversarial import outcome

        params, settings = workspace.params, workspace.params.attack[study]
        capsules, cnn = params.runs[settings.capsules], params.runs[settings.cnn]
        assert isinstance(capsules.augmentation, CropParams)  # params.yaml was checked
        if capsules.dataset != cnn.dataset or capsules.augmentation != cnn.augmentation:
            raise UserError(f"attack.{study}: both networks must see the same images (dataset, augmentation)")
        device = choose_device(params.device)
        path = workspace.dataset_path(capsules.dataset)
        dataset, digest = load_dataset(path), sha256(path)
        workspace.run.log_dataset(capsules.dataset, dataset.label, digest)
        models = {
            name: [
                model
                for model in load_run(workspace.model_folder(name), name, run, dataset.images.shape[-1], device)
                if isinstance(model, Classifier)
            ]
            for name, run in ((settings.capsules, capsules), (settings.cnn, cnn))
        }
        found = outcome(
            models[settings.capsules], models[settings.cnn], dataset, settings, capsules.augmentation, workspace.label
        )
        provenance = workspace.provenance(
            dataset_label=dataset.label,
            data_sha256=digest,
            seeds=range(capsules.seed, capsules.seed + capsules.replicas),
        )
        workspace.write_outcome(found, "attack", provenance)


if __name__ == "__main__":
    typer.run(main)
