"""Free-form inference at the paper's sizes: what an evaluation costs, and how soon Gauss-Newton is where Adam ends.

The second is worth something on a trained model only. Taken are the weights of the paper profile's capsules, else those
of the quick profile, which are as large but for the encoder, that works once; else an untrained model, and it is said.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from benchmarks.generative import IMAGE, ROOT, paper_run
from benchmarks.machine import Budget, in_turn
from benchmarks.rows import Mark, Row, duration, rate
from pipeline.data.datasets import load_dataset
from pipeline.errors import UserError
from pipeline.layout import dataset_path, model_folder
from pipeline.learning.runs import load_run
from pipeline.params import load_params
from pipeline.systems import build_model
from pipeline.systems.generative.inference.analytic_bound import pack
from pipeline.systems.generative.inference.engines import Progress, minimise_bound
from pipeline.systems.generative.inference.free_form import Optimised, optimise
from pipeline.systems.generative.inference.methods import Task
from pipeline.systems.generative.inference.settings import AdamEngine, Engine, GaussNewtonEngine, LBFGSEngine
from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.generative.settings import GenerativeRun

RUNS = ("capsules-mnist", "capsules-digits")
"""Trained runs to look for, the first one first."""

IMAGES, FEWEST = 512, 16
"""Images optimised at once, and the fewest where time is short."""

ADAM_STEPS, TIMED_STEPS, TOLERANCE = 1000, 3, 0.1
TENTH = "target: a tenth, ratio 10"


def engines(adam_steps: int) -> dict[str, Engine]:
    """The engines compared, with the paper profile's settings."""
    return {
        "Adam, sampled": AdamEngine(
            method="adam", bound="sampled", learning_rate=0.03, steps=adam_steps, tolerance=TOLERANCE
        ),
        "L-BFGS": LBFGSEngine(method="l-bfgs", restarts=2, memory=10, steps=300, tolerance=TOLERANCE),
        "Gauss-Newton": GaussNewtonEngine(method="gauss-newton", restarts=2, steps=40, tolerance=TOLERANCE),
    }


@dataclass(frozen=True)
class Subject:
    """A model, test images `[N, 1, S, S]` for it, and where both come from."""

    model: GenerativeModel
    images: Tensor
    what: str


def subject(device: torch.device, count: int, root: Path = ROOT) -> Subject:
    """A trained model with `count` of its test images (then validation images), or an untrained one with noise."""
    for name in RUNS:
        for path in (root / "params.yaml", *sorted(root.glob("profiles/*/params.yaml"))):
            found = _trained(root, path, name, device, count)
            if found is not None:
                return found
    torch.manual_seed(0)
    model = GenerativeModel(paper_run().model, IMAGE).to(device)
    images = torch.rand(count, 1, IMAGE, IMAGE, generator=torch.Generator(device).manual_seed(0), device=device)
    return Subject(model, images, "an untrained model on noise: how soon says nothing of trained ones")


def _trained(root: Path, params: Path, name: str, device: torch.device, count: int) -> Subject | None:
    """The first seed of a run, where its weights and images are those of these parameters."""
    try:
        run = load_params(params).runs.get(name)
        if not isinstance(run, GenerativeRun):
            return None
        dataset = load_dataset(dataset_path(root, run.dataset))
        model, *_ = load_run(build_model, model_folder(root, name), name, run, dataset.images.shape[-1], device)
    except UserError:  # not there, or of other parameters
        return None
    assert isinstance(model, GenerativeModel)
    pixels = np.concatenate([dataset.part(part)[0] for part in ("test", "validation")])[:count]
    images = torch.from_numpy(pixels).to(device).float() / 255
    return Subject(model, images, f"the first seed of {name} on {dataset.label}")


def measure(device: torch.device, limit: float, budget: Budget, quick: bool = False) -> list[Row]:
    """Every row about free-form inference.

    Args:
        limit: seconds to spend, about; more than that many images at once would take longer.
    """
    chosen = subject(device, 4 if quick else IMAGES)
    compared = engines(3 if quick else ADAM_STEPS)
    costs, rows = _costs(chosen, compared, device, limit * 0.1, budget)
    # What the comparison takes at most, if every image takes every evaluation.
    longest = sum(costs[name] * _most(compared[name]) for name in ("Adam, sampled", "Gauss-Newton"))
    fitting = int(0.8 * limit / (longest / len(chosen.images)))
    images = chosen.images if quick else chosen.images[: max(FEWEST, fitting)]
    subjects = Subject(chosen.model, images, chosen.what)
    return [*rows, *_comparison(subjects, compared, budget)]


def _most(engine: Engine) -> int:
    """Evaluations that an image takes at most."""
    starts = engine.restarts + 1 if not isinstance(engine, AdamEngine) else 1
    return starts * (engine.steps + 1)


def _costs(
    chosen: Subject, compared: dict[str, Engine], device: torch.device, limit: float, budget: Budget
) -> tuple[dict[str, float], list[Row]]:
    """Seconds that one evaluation of all images at once takes by engine, and the rows about it."""
    model, images = chosen.model, chosen.images
    with torch.no_grad():
        states = pack(model.encode(images))
    taken: dict[str, float] = {}

    def few_steps(name: str, engine: Engine) -> Callable[[], Progress]:
        changes = {"steps": TIMED_STEPS, **({} if isinstance(engine, AdamEngine) else {"restarts": 0})}
        short = engine.model_copy(update=changes)

        def work() -> Progress:
            progress = minimise_bound(Task(model, images, torch.Generator(device).manual_seed(0)), states, short)
            taken[name] = float(progress.evaluations.float().mean())
            return progress

        return work

    for parameter in model.parameters():
        parameter.requires_grad_(False)  # as `optimise` has it
    samples = in_turn({name: few_steps(name, engine) for name, engine in compared.items()}, device, limit, budget, 1)
    costs = {name: median(found) / taken[name] for name, found in samples.items()}
    adam = costs["Adam, sampled"] / len(images) * 1e3
    rows = []
    for name, cost in costs.items():
        other = None if name == "Adam, sampled" else Mark(adam, "an evaluation of Adam, same rounds")
        how = f"{len(images)} images at once, median of {len(samples[name])} rounds of {taken[name]:g} evaluations"
        each = cost / len(images) * 1e3
        rows.append(duration(f"free-form: {name}", each, "ms/image and evaluation", None, other, how))
    return costs, rows


def _comparison(chosen: Subject, compared: dict[str, Engine], budget: Budget) -> list[Row]:
    """How many evaluations and seconds Gauss-Newton takes to the bound where Adam ends."""

    def found(name: str) -> Optimised:
        budget.show(f"free-form, {name}")
        generator = torch.Generator(chosen.images.device).manual_seed(0)  # the curves' presence samples are the same
        return optimise(chosen.model, chosen.images, compared[name], generator)

    adam, newton = found("Adam, sampled"), found("Gauss-Newton")
    return race(adam.curve, newton.curve, f"{len(chosen.images)} images at once, {chosen.what}")


def race(adam: pd.DataFrame, newton: pd.DataFrame, how: str) -> list[Row]:
    """Rows about two curves, as `optimise` gives them, of the same images under the same presence samples.

    Args:
        how: on what they were measured.
    """
    target, last = adam.iloc[-1], newton.iloc[-1]
    steps = int(target["evaluations"])
    rows = [
        rate("free-form: bound of Adam at its end", float(target["bound"]), "nats/image", note=f"{steps} steps; {how}"),
        rate("free-form: bound of Gauss-Newton at its end", float(last["bound"]), "nats/image", note=how),
    ]
    there = newton[(newton["round"] > 0) & (newton["bound"] >= target["bound"])]
    name = "free-form: Gauss-Newton to Adam's bound"
    if there.empty:
        missed = f"not reached: {target['bound'] - last['bound']:.3g} nats short when all images had converged; {how}"
        return [
            *rows,
            duration(f"{name}, evaluations", float(last["evaluations"]), "evaluations/image", note=missed),
            duration(f"{name}, seconds", float(last["seconds"]), "s", note=missed),
        ]
    first = there.iloc[0]
    note = f"round {first['round']:.0f} is the first of those measured to reach {target['bound']:.1f} nats; {how}"
    work = Mark(float(target["evaluations"]), f"{steps} steps of Adam; {TENTH}")
    time = Mark(float(target["seconds"]), f"{steps} steps of Adam; {TENTH}")
    return [
        *rows,
        duration(f"{name}, evaluations", float(first["evaluations"]), "evaluations/image", None, work, note),
        duration(f"{name}, seconds", float(first["seconds"]), "s", None, time, note),
    ]
