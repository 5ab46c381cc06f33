"""What document 004 trained its networks with, and in what the settings of a result differ from that.

Settings are those that the result itself recorded: the profile's may be others by now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.results.findings import NOT_THE_PAPERS_DATA
from pipeline.results.reading import Recorded

PAPER_DATASET = "smallNORB"
CLASSES = ("animal", "human", "airplane", "truck", "car")
"""Of smallNORB, by label. As `data.norb.CATEGORIES`, but a figure does not depend on how data are read."""
SOURCES = ("smallnorb", "smallnorb48", "smallnorb48-posed", "toys")
"""Of the paper's main data set: itself, copies of it, and what stands in for it; the one to be preferred first."""
COPIES = {
    "smallnorb48": "decoded from JPEG copies (the paper's: the published files)",
    "smallnorb48-posed": "the test part alone, split by instance, decoded from JPEG copies (the paper's: both parts)",
}
PAPER_TRAIN_IMAGES = {"smallnorb": 24_300, "smallnorb48": 24_300, "mnist": 60_000, "cifar10": 50_000}
PAPER_CONDITION: dict[str, object] = {
    "iterations": 3, "pose": "matrix", "coordinate_addition": True, "loss": "spread", "activation": "mdl",
}  # fmt: skip
"""The third row of Table 1, the paper's best model. Other rows change some of these."""
PAPER_SIZES: dict[str, object] = {"channels": 32, "primary_types": 32, "types": [32, 32]}
"""A, B, and C and D: 310,000 parameters."""
SMALL_SIZES: dict[str, object] = {"channels": 64, "primary_types": 8, "types": [16, 16]}
"""Of the network with 68,000 parameters (section 5)."""
PAPER_STRUCTURE: dict[str, object] = {
    "kernel": 5, "stride": 2, "capsule_kernel": 3, "capsule_strides": [2, 1], "pose_side": 4,
}  # fmt: skip
PUBLISHED: dict[str, object] = {
    "competition": "all", "first_shares": "position", "inverse_temperature": 0.02, "inverse_temperature_rate": 0.95,
    "class_inverse_temperature": 0.25, "damping": 0.1, "damped_first": True, "variance_floor": 0.0005, "saving": None,
    "primary_pose_sd": 0.5, "primary_activation_sd": 3.0, "primary_bias": -1.0, "weight_decay": 2e-7,
}  # fmt: skip
"""Numerics of the authors' published code, in the units of ours (`model.m_steps`); the paper gives none."""
OLDER: dict[str, object] = {
    "first_shares": "all", "damped_first": False, "gamma": 0.0, "gain": 0.0, "offset": 0.0,
}  # fmt: skip
"""What results have that are older than the setting."""
PAPER_MARGINS: dict[str, object] = {"first_margin": 0.2, "last_margin": 0.9}
PAPER_CROP = 32
PAPER_LIGHT: dict[str, object] = {"gamma": 0.0, "gain": 0.0, "offset": 0.0}
"""The published code changes brightness and contrast before it standardises images, which takes both away."""
WARPS = ("rotation", "scale", "aspect", "shear", "shift")
"""Settings of warps, which the paper has none of; results from before there were any do not have them."""
PUBLISHED_STEPS = 200_000
"""After which the margin of the loss is halfway in the published code; the paper does not say how long it trained."""
PAPER_CNN: dict[str, object] = {"channels": [32, 64], "kernel": 5, "hidden": 1024}


def preference(dataset: Recorded, sources: Sequence[str] = SOURCES) -> int:
    """The place of a data set among those that stand for the paper's, from 0; beyond the last where it does not."""
    return sources.index(dataset.source) if dataset.source in sources else len(sources)


def stands_in(dataset: Recorded) -> bool:
    """Whether a data set is the paper's main one, or stands in for it."""
    return dataset.source in SOURCES


def class_names(settings: Recorded, dataset: Recorded, outputs: int) -> tuple[str, ...]:
    """Names of a network's classes: smallNORB's, those of own images, or else numbers.

    Args:
        settings: of the result.
        outputs: classes of the network, which may be more than the data set has.
    """
    if stands_in(dataset):
        return CLASSES
    own = settings.get("own_images", {}).get(dataset.source, {}).get("classes", [])
    return (*own, *map(str, range(len(own), outputs)))


def has_sizes(run: Recorded, sizes: Mapping[str, object]) -> bool:
    """Whether a run's network has these sizes."""
    return not _differing(run.model, sizes)


def trained_on(run: Recorded) -> str:
    """What a run's images are trained as, in words."""
    return "crops and warps" if _warps(run) else "crops"


def distance(run: Recorded, sizes: Mapping[str, object] = PAPER_SIZES) -> tuple[bool, bool, int]:
    """How far a run is from the paper's, to sort by: whether it has other sizes, whether it was trained on warps, and
    how many settings are others.

    Args:
        sizes: that the paper's network has.
    """
    if run.variant == "cnn":
        return False, bool(_warps(run)), len(_of_cnn(run))
    others = _of_capsules(run, sizes, PAPER_CROP) + _differing({**OLDER, **run.model}, {**PAPER_CONDITION, **PUBLISHED})
    return not has_sizes(run, sizes), bool(_warps(run)), len(others)


def remarks_on_data(dataset: Recorded, source: str = SOURCES[0], label: str = PAPER_DATASET) -> list[str]:
    """In what a data set falls short of the paper's, which is `source`, called `label`."""
    if dataset.source in COPIES and source == SOURCES[0]:
        remarks = [COPIES[dataset.source]]
    elif dataset.source != source:
        return [f"{NOT_THE_PAPERS_DATA} ({label})"]
    else:
        remarks = []
    published = PAPER_TRAIN_IMAGES.get(dataset.source, 0)
    if dataset.train < published:
        remarks.append(f"trained on {dataset.train:,} images (paper: {published:,})")
    return remarks


def remarks_on_capsules(
    run: Recorded,
    dataset: Recorded,
    sizes: Mapping[str, object] = PAPER_SIZES,
    crop: int | None = PAPER_CROP,
    share: float = 1,
) -> list[str]:
    """In what the network and the training of matrix capsules fall short of the paper's, but for Table 1's changes.

    Args:
        dataset: that the run was trained on.
        sizes: that the paper has for this claim.
        crop: pixels that its network sees; None where it does not say.
        share: of the training images that it sees.
    """
    remarks = _listed(_of_capsules(run, sizes, crop), "the paper's")
    remarks += _listed(_differing({**OLDER, **run.model}, PUBLISHED), "the published code's")
    remarks += _of_training(run)
    holdout = run.get("holdout")
    images = (dataset.train + dataset.validation) * (1 - holdout.known_share) if holdout else dataset.train
    steps, least = int(images * share) // run.training.batch_size, "less than " if holdout else ""
    if run.training.epochs * steps < PUBLISHED_STEPS:
        remarks.append(
            f"{run.training.epochs} epochs of {least}{steps:,} steps (in the published code the margin is halfway "
            f"after {PUBLISHED_STEPS:,} steps)"
        )
    return remarks


def remarks_on_condition(run: Recorded) -> list[str]:
    """In what matrix capsules differ from the paper's best model by what Table 1 changes, such as iterations."""
    return _listed(_differing(run.model, PAPER_CONDITION), "the paper's")


def remarks_on_cnn(run: Recorded) -> list[str]:
    """In what the convolutional network falls short of the paper's, which does not say how long that was trained."""
    return _listed(_of_cnn(run), "the paper's") + _of_training(run)


def _of_training(run: Recorded) -> list[str]:
    """Images that the paper did not train on, and images that it did not hold out."""
    remarks = (
        [f"trained on crops and warps by {', '.join(warps)} (paper: crops only)"] if (warps := _warps(run)) else []
    )
    if holdout := run.get("holdout"):
        remarks.append(f"training images of {holdout.factor} {holdout.value} held out for validation")
    return remarks


def _warps(run: Recorded) -> list[str]:
    return [f"{name} {value:g}" for name in WARPS if (value := run.augmentation.get(name))]


def _of_capsules(run: Recorded, sizes: Mapping[str, object], crop: int | None) -> list[str]:
    differences = _differing(run.model, {**sizes, **PAPER_STRUCTURE})
    if run.model.loss == "spread":
        differences += _differing(run.model, PAPER_MARGINS)
    if crop is not None:
        differences += _of_crops(run.augmentation, crop)
    return differences


def _of_cnn(run: Recorded) -> list[str]:
    return _differing(run.model, PAPER_CNN) + _of_crops(run.augmentation, PAPER_CROP)


def _of_crops(augmentation: Recorded, crop: int) -> list[str]:
    return _differing({**OLDER, **augmentation}, {"crop": crop, **PAPER_LIGHT})


def _differing(settings: Mapping[str, Any], theirs: Mapping[str, object]) -> list[str]:
    return [
        f"{name.replace('_', ' ')} {_in_words(settings[name])} / {_in_words(value)}"
        for name, value in theirs.items()
        if settings[name] != value
    ]


def _in_words(value: object) -> str:
    """A setting as text: "none", "on" and "off" rather than Python's words."""
    return {"None": "none", "True": "on", "False": "off"}.get(str(value), str(value))


def _listed(differences: list[str], whose: str) -> list[str]:
    return [f"{', '.join(differences)} (ours / {whose})"] if differences else []
