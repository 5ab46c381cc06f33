"""Which runs stand for the claims of document 000, and in what their settings fall short of the paper's.

A run counts for Table 1 when it was trained on upright images. Among several, a run on the paper's own data set comes
first, then the order of `params.yaml`. A run whose model goes beyond the paper's comes after all that do not.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.params import Params
from pipeline.results.findings import NOT_THE_PAPERS_DATA, Evidence
from pipeline.results.reading import Numbers, merged_provenance
from pipeline.systems.generative.settings import GenerativeRun
from pipeline.systems.scae.settings import SCAERun

PAPER_SOURCE, PAPER_DATASET = "mnist", "MNIST"
PAPER_SEEDS = 5
PAPER_TEST_IMAGES = 10_000
PAPER_TRAIN_IMAGES = 50_000
"""MNIST's 60,000 less what is held out for validation; the paper does not say how many it held out."""
PAPER_SIZES = {
    "generative": {"objects": 16, "parts": 16, "template_size": 12},
    "scae": {"objects": 24, "parts": 24},
}
PAPER_SCAE_STEPS = 300_000


def candidates(params: Params, variant: str, *, shifted: bool = False) -> list[str]:
    """Runs of a variant trained on upright images, the one to be preferred first.

    Args:
        shifted: prefer runs trained on shifted images, as affNIST's protocol has it, to those on centred ones.
    """
    upright = [name for name, run in params.runs.items() if run.variant == variant and run.augmentation.rotation == 0]

    def rank(name: str) -> tuple[bool, bool, bool]:
        run = params.runs[name]
        elsewhere = params.datasets[run.dataset].source != PAPER_SOURCE
        return bool(beyond_paper(params, name)), elsewhere, (run.augmentation.shift > 0) != shifted

    return sorted(upright, key=rank)  # sorted() keeps the order of params.yaml among equals


def beyond_paper(params: Params, run: str) -> list[str]:
    """In what the model of `run` is another than the paper's, in words; nothing for most."""
    settings = params.runs[run]
    if not isinstance(settings, GenerativeRun):
        return []
    words = []
    if settings.model.slots != "own":
        words.append("parts in any slot (paper: their own)")
    if settings.model.pose_posterior != "delta":
        words.append("Gaussian poses (paper: delta)")
    return words


def studies(params: Params) -> list[str]:
    """Optimise studies, those on the paper's data set first."""
    return sorted(params.optimise, key=lambda name: not on_papers_data(params, params.optimise[name].run))


def swept(params: Params, variant: str) -> list[str]:
    """Runs of a variant that the sweep starts from, those on the paper's data set first."""
    names = [name for name in params.sweep.runs if params.runs[name].variant == variant]
    return sorted(names, key=lambda name: (bool(beyond_paper(params, name)), not on_papers_data(params, name)))


def sweep_item(run: str, angle: float) -> str:
    """The item of the sweep that trained `run` on rotations up to `angle` degrees."""
    return f"{run}-{angle:g}"


def on_papers_data(params: Params, run: str) -> bool:
    return params.datasets[params.runs[run].dataset].source == PAPER_SOURCE


def shortcomings(params: Params, run: str, *, seeds: int | None = None, images: int | None = None) -> list[str]:
    """In what the setting of `run` falls short of the paper's.

    Args:
        seeds: replicas measured, where the paper averages over several.
        images: test images used, where the paper uses all of them.
    """
    settings = params.runs[run]
    dataset = params.datasets[settings.dataset]
    remarks = []
    if dataset.source != PAPER_SOURCE:
        remarks.append(f"{NOT_THE_PAPERS_DATA} ({PAPER_DATASET})")
    else:
        if dataset.train < PAPER_TRAIN_IMAGES:
            remarks.append(f"trained on {dataset.train:,} images (paper: {PAPER_TRAIN_IMAGES:,} or more)")
        if images is not None and images < PAPER_TEST_IMAGES:
            remarks.append(f"tested on {images:,} images (paper: {PAPER_TEST_IMAGES:,})")
    remarks += beyond_paper(params, run)
    if isinstance(settings, GenerativeRun | SCAERun):
        paper = PAPER_SIZES[settings.variant]
        sizes = {name: getattr(settings.model, name) for name in paper}
        remarks += [
            f"{name.replace('_', ' ')} {size} (paper: {paper[name]})"
            for name, size in sizes.items()
            if size != paper[name]
        ]
    if seeds is not None and seeds < PAPER_SEEDS:
        remarks.append(f"{seeds} seed{'s' * (seeds != 1)} (paper: {PAPER_SEEDS})")
    return remarks


def count_test_images(params: Params, run: str) -> int:
    """Test images of the data set that `run` is trained on."""
    return params.datasets[params.runs[run].dataset].test


def with_training(evidence: Evidence, run: str, numbers: Numbers) -> list[dict[str, object]]:
    """The provenance of `numbers`, with that of the training it rests on before it."""
    trained = evidence.results.numbers("train", run)
    return [*(trained.records if trained else []), *numbers.records]


def fewer_steps(params: Params, run: str, items: Sequence[Numbers]) -> list[str]:
    """That an SCAE was trained for fewer steps than its authors', where it was; `items` are those of its sweep."""
    settings = params.runs[run]
    if not isinstance(settings, SCAERun):
        return []
    epochs = [merged_provenance(numbers.records)["epochs"] or 0 for numbers in items]
    steps = min(epochs) * (params.datasets[settings.dataset].train // settings.training.batch_size)
    return [f"SCAE: {steps:,.0f} steps (paper: {PAPER_SCAE_STEPS:,})"] if steps < PAPER_SCAE_STEPS else []
