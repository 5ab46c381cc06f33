"""Gains from free-form optimisation, by engine (optimiser) and range of rotation (document 000, section 2.4, Figure 3).

Free-form optimisation starts from the encoder's posterior of each image (kind "before") and finds a better posterior
(kind "after"). Linear probes on t0, the log odds that objects are present, measure the effect on classification. The
probe `fixed` is fit to the encoder's posteriors of upright training images. For the engine `chosen` only, a probe
`refit` is fit to each kind of posterior of rotated training images, and tested on this kind for rotated test images.
If this engine uses restarts, there are two more kinds:

- `once`: the result without restarts.
- `kicked`, only at the smallest angle: the result of a second optimisation that starts from `once`. Its restarts add
  noise to log odds and poses, and it does not end with an optimisation of the objects alone. So most of the noise in
  t0 remains, because the bound depends little on t0.
"""

import math
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from torch import Tensor
from tqdm import tqdm

from pipeline.context import Context
from pipeline.data import warps
from pipeline.data.datasets import Dataset
from pipeline.errors import UserError
from pipeline.probes.generalisation import clean_probe, fit_probe
from pipeline.probes.settings import EvaluateParams
from pipeline.results.outcome import Outcome
from pipeline.results.spread import nest, stack_replicas
from pipeline.systems.generative.evaluation.examples import Arrays, arrange, arrays_of, turned
from pipeline.systems.generative.inference.free_form import Optimised, optimise
from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.generative.settings import AdamEngine, OptimiseParams

EXAMPLE_ANGLES = np.arange(0, 181, 30, dtype=np.float32)

BATCH = 512
"""Number of training images that are optimised in one batch."""


def optimisation_gains(
    model: GenerativeModel, dataset: Dataset, study: OptimiseParams, evaluate: EvaluateParams
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Measure engines' gains on the first test images, rotated at random within +-angle degrees, one batch per angle.

    Returns:
        two tables. The first has one row per engine and angle, with these columns (NaN if not measured):

        - `bound_<kind>`, in nats (mean over images), for the kinds before, after and kicked
        - `pixel_error_<kind>`, squared, summed over pixels (mean over images), for the kinds before and after
        - `accuracy_<kind>` of the fixed probe and, for the chosen engine, `refit_accuracy_<kind>`, for all kinds
        - `refit_gain`: `refit_accuracy_after` minus `refit_accuracy_before`
        - `bound_rise_error`, `pixel_fall_error`, `refit_gain_error`: standard errors, over images, of the mean changes
          from before to after in the bound, the pixel error and the refit probe's accuracy
        - `bound_fell`: share of images whose bound is lower after optimisation than before
        - `evaluations` of the gradient (mean per image), `seconds` for the batch, number of `images`

        The second table has one row per engine, angle and measured round, with the columns of `Optimised.curve`.

    Raises:
        UserError: a measurement is infinite or NaN.
    """
    clean = clean_probe(model, dataset, "t0", evaluate, model.device)
    images, labels = dataset.part("test")
    images, labels = images[: study.images], labels[: study.images]
    rows, curves = [], []

    def refit_probes(angle: float) -> dict[str, Pipeline]:
        """Fit a probe on t0 to each kind of the chosen engine's posteriors of rotated training images. The
        regularisation strength is selected on the last fifth of these images.
        """
        inputs, classes = dataset.part("train")
        inputs, classes = inputs[: study.refit_images], classes[: study.refit_images]
        batches = _turn(inputs, angle, study.seed + 1, model.device).split(BATCH)
        found = [_t0(_optimised(model, batch, study, study.chosen, angle)) for batch in batches]
        kept, probes = len(inputs) - len(inputs) // 5, {}
        for when in found[0]:
            t0 = np.concatenate([each[when] for each in found])
            train, validation = (t0[:kept], classes[:kept]), (t0[kept:], classes[kept:])
            probes[when] = fit_probe(train, validation, evaluate.probe_strengths)
        return probes

    for angle in study.angles:
        pixels = _turn(images, angle, study.seed, model.device)
        for name in study.engines:
            found = _optimised(model, pixels, study, name, angle)
            t0, rise = _t0(found), found.bounds["after"] - found.bounds["before"]
            row = {
                "engine": name,
                "angle": angle,
                **{f"bound_{when}": float(each.mean()) for when, each in found.bounds.items()},
                **{f"pixel_error_{when}": float(each.mean()) for when, each in found.errors.items()},
                "evaluations": float(found.evaluations.float().mean()),
                "seconds": found.seconds,
                "images": len(images),
                "bound_rise_error": _error(rise),
                "pixel_fall_error": _error(found.errors["before"] - found.errors["after"]),
                "bound_fell": float((rise < 0).double().mean()),
            }
            if name == study.chosen:
                right = {when: probe.predict(t0[when]) == labels for when, probe in refit_probes(angle).items()}
                row |= {f"refit_accuracy_{when}": float(each.mean()) for when, each in right.items()}
                gains = right["after"].astype(float) - right["before"]
                row |= {"refit_gain": float(gains.mean()), "refit_gain_error": _error(torch.from_numpy(gains))}
            row |= {f"accuracy_{when}": clean.score(each, labels) for when, each in t0.items()}
            if wrong := [key for key, value in row.items() if isinstance(value, float) and not math.isfinite(value)]:
                raise UserError(f"{name} within {angle:g} degrees: not finite: {', '.join(wrong)}")
            rows.append(row)
            curves.append(found.curve.assign(engine=name, angle=angle))
    return pd.DataFrame(rows), pd.concat(curves, ignore_index=True)


def _optimised(model: GenerativeModel, images: Tensor, study: OptimiseParams, name: str, angle: float) -> Optimised:
    """Optimise the posteriors of images `[N, 1, S, S]` by the engine `name`. If it is the chosen engine and restarts,
    the result also has the posterior "once" and, at the smallest angle, the posterior and bound "kicked" (see the
    module's docstring).
    """
    engine = study.engines[name]
    found = optimise(model, images, engine, torch.Generator(images.device).manual_seed(study.seed))
    posteriors, bounds = dict(found.posteriors), dict(found.bounds)
    if name != study.chosen or isinstance(engine, AdamEngine) or not engine.restarts:
        del posteriors["once"]
    elif angle == min(study.angles):
        generator, start = torch.Generator(images.device).manual_seed(study.seed), posteriors["once"]
        kicked = optimise(model, images, engine, generator, start, logit_sd=study.kick_logit, refine=False)
        posteriors["kicked"], bounds["kicked"] = kicked.posteriors["after"], kicked.bounds["after"]
    return replace(found, posteriors=posteriors, bounds=bounds)


def _t0(found: Optimised) -> dict[str, NDArray[np.float32]]:
    return {when: each.object_logits.cpu().numpy() for when, each in found.posteriors.items()}


def example_gains(model: GenerativeModel, dataset: Dataset, study: OptimiseParams) -> Arrays:
    """Arrays by name for a figure like Figure 3. `images [7, S, S]` show a test image of a 2 at 7 `angles` (degrees).
    `before` and `after`, `[7, S, S]`, are its reconstructions before and after optimisation by the chosen engine.
    `arrangements_before` and `arrangements_after`, `[7, S, S, 3]`, are these reconstructions with a colour per part.
    """
    images, labels = dataset.part("test")
    pixels = turned(images[int(np.argmax(labels == 2))], EXAMPLE_ANGLES, model.device)
    found = optimise(model, pixels, study.engines[study.chosen], torch.Generator(model.device).manual_seed(study.seed))
    posteriors = {when: found.posteriors[when] for when in ("before", "after")}
    with torch.no_grad():
        drawn = {when: model.draw(model.states(each)) for when, each in posteriors.items()}
        coloured = {f"arrangements_{when}": arrange(model, each) for when, each in posteriors.items()}
    return arrays_of(images=pixels[:, 0], **drawn, **coloured) | {"angles": EXAMPLE_ANGLES}


def _turn(images: NDArray[np.uint8], angle: float, seed: int, device: torch.device) -> Tensor:
    """Rotate each of the uint8 images `[N, 1, S, S]` at random within +-`angle` degrees. Returns values in [0, 1]."""
    angles = torch.Generator().manual_seed(seed)  # on the CPU, so that all devices use the same angles
    batch = torch.from_numpy(images).to(device)
    return warps.warp(batch, warps.uniform_rotations(batch, angle, angles))


def _error(changes: Tensor) -> float:
    """The standard error of the mean of `changes [N]`, one per image; 0 if N is 1."""
    return float(changes.std()) / math.sqrt(len(changes)) if len(changes) > 1 else 0.0


def measure(context: Context) -> Outcome:
    """Measure the gains, and the bound during optimisation, of all replicas. Example arrays are from the first replica.

    At the end, the mean bound over replicas is logged for each engine, angle and measured round.

    Raises:
        UserError: a measurement is infinite or NaN.
    """
    settings, evaluate = context.settings, context.params.evaluate
    dataset = context.evaluated(context.params.runs[settings.run].dataset)
    models = context.models(settings.run, GenerativeModel, settings.replicas)
    start = time.monotonic()
    bar = tqdm(models, desc=context.label, unit="seed")
    gains = [optimisation_gains(model, dataset, settings, evaluate) for model in bar]
    seconds = time.monotonic() - start
    measured = stack_replicas([table for table, _ in gains])
    measured["angle"] = measured["angle"].map("{:g}".format)
    long = measured.melt(id_vars=["replica", "engine", "angle", "images"], var_name="metric").dropna()
    numbers = {
        "engine": nest(long, ["engine", "angle", "metric"], "value"),
        "images": min(settings.images, len(dataset.split["test"])),
        "seconds": round(seconds, 2),
    }
    names = ("bound_before", "bound_after", "refit_accuracy_before", "refit_accuracy_after")
    angles = dict.fromkeys((min(settings.angles), max(settings.angles)))
    headline = tuple(f"engine.{settings.chosen}.{angle:g}.{name}" for angle in angles for name in names)
    curves = stack_replicas([curve for _, curve in gains])
    for (engine, step), rows in curves.groupby(["engine", "round"]):
        means = rows.groupby("angle")["bound"].mean()
        tracked = {f"bound/{engine}/{angle:g}": float(value) for angle, value in means.items()}
        context.run.log_metrics(tracked, step=int(str(step)))
    arrays = example_gains(models[0], dataset, settings)
    return Outcome("optimisation", curves, numbers, headline, {**arrays})
