"""Attacks on matrix capsules and on a convolutional network (document 004, section 6, Figure 3)."""

from __future__ import annotations

import typer

from stages.workspace import stage


def main(study: str) -> None:
    """Attack the trained networks of STUDY, an entry of `attack` in params.yaml."""
    with stage("attack", study) as workspace:
        from pipeline.classification.adversarial import outcome
        from pipeline.classification.classifier import Classifier
        from pipeline.errors import UserError
        from pipeline.learning.settings import CropParams

        params, settings = workspace.params, workspace.params.attack[study]
        capsules, cnn = params.runs[settings.capsules], params.runs[settings.cnn]
        assert isinstance(capsules.augmentation, CropParams)  # params.yaml was checked
        if capsules.dataset != cnn.dataset or capsules.augmentation != cnn.augmentation:
            raise UserError(f"attack.{study}: both networks must see the same images (dataset, augmentation)")
        device = workspace.choose_device()
        dataset, digest = workspace.open_dataset(capsules.dataset)
        workspace.run.log_dataset(capsules.dataset, dataset.label, digest)
        size = dataset.images.shape[-1]
        attacked, beside = (
            workspace.trained_models(name, Classifier, size, device) for name in (settings.capsules, settings.cnn)
        )
        result = outcome(attacked, beside, dataset, settings, capsules.augmentation, workspace.label)
        workspace.write(result, dataset_label=dataset.label, data_sha256=digest, seeds=capsules.seeds)


if __name__ == "__main__":
    typer.run(main)
