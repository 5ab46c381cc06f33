"""The probabilistic capsule model at the paper's sizes: its training step, and what it is made of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.enumerated import EnumeratedModel
from benchmarks.machine import Budget, Works, in_turn, paired_ratio
from benchmarks.renderer import Renderer, by_operator, largest_made, render_plainly, warps_bytes
from benchmarks.rows import Mark, Row, allowance, duration, rate
from benchmarks.training import Step, without_kernels
from pipeline import kernels
from pipeline.layers.rendering import render
from pipeline.params import load_params
from pipeline.profiles import Profiles
from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.generative.model.hierarchy import join
from pipeline.systems.generative.model.posteriors import Capsules
from pipeline.systems.generative.settings import GenerativeModelParams, GenerativeRun

ROOT = Path(__file__).parents[1]

PAPER = {"objects": 16, "parts": 16, "template_size": 12, "hidden": 128, "heads": 4, "inducing": 32, "blocks": 4}
IMAGE, BATCH = 28, 128

PEER_MS = 18.0
"""Forward and backward of public PyTorch code of stacked capsule autoencoders, per image on one CPU thread."""


def paper_run() -> GenerativeRun:
    """The first capsule run of the profiles, with a model of the paper's sizes.

    Raises:
        LookupError: no profile has one.
    """
    profiles = Profiles(ROOT)
    for profile in profiles.all():
        for run in load_params(profiles.params_path(profile.name)).runs.values():
            if isinstance(run, GenerativeRun):
                return run.model_copy(update={"model": run.model.model_copy(update=PAPER)})
    raise LookupError("no profile has a generative run")


def fully_coupled(run: GenerativeRun, device: torch.device, batch: int = BATCH) -> Step:
    """A training step in an epoch in which parts and objects are fully coupled."""
    return Step(run, IMAGE, device, batch, at_epoch=100.0)


def model_of(step: Step) -> GenerativeModel:
    """The first seed's model."""
    model = step.model
    assert isinstance(model, GenerativeModel)
    return model


def enumerated_step(step: Step) -> Callable[[], None]:
    """The same step with the choice of parent an explicit site that `TraceEnum_ELBO` sums out."""
    model = model_of(step)
    form = EnumeratedModel(model)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    images, noise = step.images, step.noise

    def take() -> None:
        optimiser.zero_grad()
        (form.loss(images, noise) / len(images)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e3)
        optimiser.step()

    return take


def rendering(step: Step, draw: Renderer = render) -> Callable[[], None]:
    """Forward and backward of a renderer alone, at the poses that the encoder gives."""
    model = model_of(step)
    with torch.no_grad():
        logits, found = model.encode_parts(step.images)
        templates, presence = model.templates, logits.sigmoid()
    leaves = templates.requires_grad_(), found.requires_grad_(), presence.requires_grad_()
    upstream = torch.rand(step.batch, IMAGE, IMAGE, device=step.device)

    def take() -> None:
        torch.autograd.grad(draw(*leaves, IMAGE), leaves, upstream)

    return take


def encoding(step: Step) -> Callable[[], None]:
    """Forward and backward of the encoder alone: parts from pixels, objects from parts."""
    model, images = model_of(step), step.images

    def forward() -> Tensor:
        y1, A1 = model.encode_parts(images)
        y0, A0 = model.encode_objects(y1, A1)
        return join(y1, A1).sum() + join(y0, A0).sum()

    def take() -> None:
        model.zero_grad()
        forward().backward()

    return take


class DensitiesOnly(GenerativeModel):
    """The model with nothing to encode or draw: what is left of its bound is densities and Pyro's traces."""

    def __init__(self, params: GenerativeModelParams, capsules: Capsules, picture: Tensor) -> None:
        super().__init__(params, IMAGE)
        free = [tensor.detach().requires_grad_() for tensor in (capsules.part_logits, capsules.part_poses)]
        self.parts = free[0], free[1]
        self.objects = capsules.object_logits.detach().requires_grad_(), capsules.object_poses.detach().requires_grad_()
        self.picture = picture.requires_grad_()

    def _part_features(self, images: Tensor) -> Tensor:
        return images

    def _read_parts(self, features: Tensor) -> tuple[Tensor, Tensor]:
        return self.parts

    def _object_codes(self, y1: Tensor, A1: Tensor) -> Tensor:
        return y1

    def _read_objects(self, codes: Tensor) -> tuple[Tensor, Tensor]:
        return self.objects

    def draw(self, parts: Tensor) -> Tensor:
        return self.picture


def densities(step: Step) -> tuple[Callable[[], None], Callable[[], None]]:
    """Forward and backward of the bound alone: ours, and that of `TraceEnum_ELBO`."""
    model, images, noise = model_of(step), step.images, step.noise
    with torch.no_grad():
        found = model.encode(images)
    bare = DensitiesOnly(model.params, found, torch.rand_like(images[:, 0])).to(step.device)
    form = EnumeratedModel(bare)

    def ours() -> None:
        bare.zero_grad()
        bare(images, noise, step.epoch)[0].backward()

    def theirs() -> None:
        bare.zero_grad()
        (form.loss(images, noise) / len(images)).backward()

    return ours, theirs


def updating(step: Step) -> Callable[[], None]:
    """Clipping and the optimiser alone."""
    gradients = [torch.rand_like(value) * 1e-6 for value in step.trained]
    return lambda: step.update(gradients)


def operations(work: Callable[[], object]) -> int:
    """Floating-point operations of the matrix products and convolutions of one call, forward and backward.

    Those of PyTorch's operators: what a compiled kernel does cannot be counted.
    """
    with kernels.switched_off(), FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops())


def layer_bytes(params: GenerativeModelParams, batch: int) -> int:
    """Bytes that a renderer must move which makes one warped layer (colour and opacity) per part and then composites.

    Forward, the layers are written and read once and the picture is written; backward, the layers are read once more,
    their gradients written and read, and the picture's gradient read. Templates and poses are small beside that.
    """
    layers, picture = batch * params.parts * 2 * IMAGE**2 * 4, batch * IMAGE**2 * 4
    return 5 * layers + 2 * picture


def fused_bytes(params: GenerativeModelParams, batch: int) -> int:
    """Bytes that any renderer must move: templates, poses, presences in, the picture out, and the gradient of each."""
    templates = params.parts * 2 * params.template_size**2
    states = batch * params.parts * 7
    return (3 * templates + 3 * states + 2 * batch * IMAGE**2) * 4


def measure(
    device: torch.device, copied: float, multiplied: float, limit: float, budget: Budget, quick: bool = False
) -> list[Row]:
    """Every row about the model.

    Args:
        copied, multiplied: the machine's ceilings, bytes and operations per second.
        limit: seconds to spend, about.
    """
    batch = 4 if quick else BATCH
    run = paper_run()
    return [
        *_one_seed(run, batch, device, copied, multiplied, limit * 0.8, budget),
        *([] if device.type == "cuda" else _one_thread(run, batch, device, limit * 0.2, budget)),
    ]


def _one_seed(
    run: GenerativeRun,
    batch: int,
    device: torch.device,
    copied: float,
    multiplied: float,
    limit: float,
    budget: Budget,
) -> list[Row]:
    params, step = run.model, fully_coupled(run, device, batch)
    bound, their_bound = densities(step)
    pieces = {"rendering": rendering(step), "encoder": encoding(step), "bound": bound, "optimiser": updating(step)}
    whole: Works = {"training step": step, "TraceEnum_ELBO": enumerated_step(step)}
    arithmetic = operations(lambda: model_of(step)(step.images, step.noise, step.epoch)[0].backward())
    encoder_arithmetic = operations(pieces["encoder"])
    plainly = rendering(step, render_plainly)
    references: Works = {"TraceEnum_ELBO, bound": their_bound, "rendering, plainly": plainly}
    if device.type == "cpu":
        references |= {"without kernels": without_kernels(step)}
    samples = in_turn({**whole, **pieces, **references}, device, limit, budget)
    took = {name: median(found) for name, found in samples.items()}
    how = f"median of {len(samples['training step'])} rounds, {params.objects}+{params.parts} capsules, batch {batch}"

    layers, fused = layer_bytes(params, batch), fused_bytes(params, batch)
    least = max(arithmetic / multiplied, fused / copied)
    best = Mark(batch / least, f"{arithmetic / 1e9:.3g} GFLOP of the step at the machine's matrix product rate")
    ratio = paired_ratio(samples["TraceEnum_ELBO"], samples["training step"])
    ours = batch / took["training step"]
    other = Mark(ours / ratio, "TraceEnum_ELBO over an explicit choice of parent, same rounds; target: ratio 1.5")
    rows = [
        rate("generative: training step", ours, "images/s", best, other, how),
        rate("generative: training step of TraceEnum_ELBO", batch / took["TraceEnum_ELBO"], "images/s", best, note=how),
    ]
    if device.type == "cpu":
        slower = paired_ratio(samples["without kernels"], samples["training step"])
        operators = Mark(ours / slower, "PyTorch's operators alone, same rounds")
        rows.append(rate("generative: training step, compiled kernels", ours, "images/s", None, operators, how))
    rows += [
        rate(
            f"generative: share of {name}",
            100 * took[name] / took["training step"],
            "% of step",
            note="timed by itself",
        )
        for name in pieces
    ]
    bound_ms = took["bound"] * 1e3
    times = paired_ratio(samples["TraceEnum_ELBO, bound"], samples["bound"])
    enumerated = Mark(bound_ms * times, "that of TraceEnum_ELBO, same rounds")
    note = "densities and Pyro's traces, forward and backward; nothing encoded, nothing drawn"
    rows.append(duration("generative: bound alone", bound_ms, "ms", reference=enumerated, note=note))
    layers_most = Mark(
        layers / copied * 1e3,
        f"{layers / 1e6:.3g} MB at the machine's copy rate: each warped layer written once and read twice, its "
        "gradient written and read once, pictures",
    )
    fused_most = Mark(
        fused / copied * 1e3,
        f"{fused / 1e6:.3g} MB at the machine's copy rate: templates, poses, presences, pictures and their gradients "
        "once each, no layer kept",
    )
    drawn, read = took["rendering"] * 1e3, encoder_arithmetic / took["encoder"] / 1e9
    before = paired_ratio(samples["rendering, plainly"], samples["rendering"])
    plain = Mark(drawn * before, "the same pictures drawn step by step as the document writes it, same rounds")
    spent, spent_plainly = by_operator(pieces["rendering"], device), by_operator(plainly, device)
    made, operator = largest_made(pieces["rendering"])
    once = Mark(1.0, "the templates' warps [B, P, 2, S, S] once, as large as the points [B, P, S, S, 2] they sample")
    largest = f"counted over all operators' results, forward and backward; the first so large is that of {operator}"
    counted = f"{encoder_arithmetic / 1e9:.3g} GFLOP of products and convolutions, forward and backward"
    rows += [
        duration("renderer: forward and backward", drawn, "ms", layers_most, plain, f"{how}; by operator: {spent}"),
        duration("renderer: written plainly", drawn * before, "ms", layers_most, note=f"by operator: {spent_plainly}"),
        allowance(
            "renderer: largest tensor made", made / warps_bytes(params, batch, IMAGE), "x the warps", once, largest
        ),
        duration("renderer: against a fused one", drawn, "ms", fused_most),
        rate("encoder: arithmetic", read, "GFLOP/s", Mark(multiplied / 1e9, "matrix product rate"), note=counted),
    ]
    return rows


def _one_thread(run: GenerativeRun, batch: int, device: torch.device, limit: float, budget: Budget) -> list[Row]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = in_turn({"one thread": fully_coupled(run, device, batch)}, device, limit, budget, least=2)["one thread"]
    finally:
        torch.set_num_threads(threads)
    peer = Mark(
        PEER_MS, "public PyTorch code of stacked capsule autoencoders (24+24 capsules), a thread of another CPU"
    )
    each = median(found) / batch * 1e3
    return [
        duration(
            "generative: training step, one CPU thread",
            each,
            "ms/image",
            reference=peer,
            note=f"{1e3 / each:.0f} images/s",
        )
    ]
