"""Benchmarks (rows of `reports/bench.json`) of the models, at the sizes of profile paper, and of the machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Literal
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.enumerated import EnumeratedModel
from benchmarks.timing import Other, Timed, Work, in_turn
from pipeline import kernels
from pipeline.layers import poses
from pipeline.layers.rendering import pixel_centres, render
from pipeline.learning.model import Model
from pipeline.learning.optimisers import build_optimiser
from pipeline.learning.train import clip
from pipeline.params import Params, load_params
from pipeline.profiles import Profiles
from pipeline.systems import Run, build_model
from pipeline.systems.capsnet.experiments.iterative_inference import energies_and_gradients
from pipeline.systems.capsnet.model.capsnet import CapsNet, forward_pass
from pipeline.systems.capsnet.settings import CapsNetRun, InferCondition
from pipeline.systems.generative.inference.analytic_bound import pack
from pipeline.systems.generative.inference.free_form import minimise_bound
from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.generative.settings import AdamEngine, Engine, GaussNewtonEngine, GenerativeRun, LBFGSEngine
from pipeline.systems.matrix_capsules.model.matrix_capsules import MatrixCapsules, RoutedCapsules
from pipeline.systems.matrix_capsules.settings import MatrixCapsulesRun
from pipeline.systems.regression.model.architectures import build_architecture
from pipeline.systems.regression.model.expectation_maximisation import Problems
from pipeline.systems.regression.settings import Decision
from pipeline.systems.scae.settings import SCAERun

GENERATIVE = {"objects": 16, "parts": 16, "template_size": 12, "hidden": 128, "heads": 4, "inducing": 32, "blocks": 4}
"""Sizes of the generative model in document 000."""
CAPSNET = {"channels": 256, "types": 32}
"""The published width of CapsNet."""

CLASSES = 10
COUPLED = 100.0
"""An epoch in which parts and objects of the generative model are fully coupled."""

CAPSNET_PEER = Other(0.044, "public PyTorch code at the same sizes, a thread of another CPU (44 to 52 ms)")
GENERATIVE_PEER = Other(0.018, "public PyTorch code of autoencoders with 24+24 capsules, a thread of another CPU")
SCAE_PEER = Other(0.018, "public PyTorch code of the same model at the same sizes, a thread of another CPU")
MATRIX_PEERS = {2: 0.226, 3: 0.304}
"""The constants `*PEER*` give seconds per image of public PyTorch code on one CPU thread, `MATRIX_PEERS` those of
forward and backward, by the number of routing iterations.
"""


@dataclass(frozen=True)
class Where:
    """Where to measure: the device, a temporary folder, and whether sizes are tiny (`quick`)."""

    device: torch.device
    folder: Path
    quick: bool = False

    def few(self, count: int) -> int:
        """A number of images: `count`, or 4 if sizes are tiny."""
        return 4 if self.quick else count


@cache
def paper_params() -> Params:
    """The parameters of the paper profile."""
    return load_params(Profiles(Path(__file__).parents[1]).params_path("paper"))


def paper_run(kind: type[Run], **model: object) -> Run:
    """The first run of the class `kind` in profile paper, with the settings `model` of its model changed."""
    run = next(run for run in paper_params().runs.values() if isinstance(run, kind))
    return run.model_copy(update={"model": run.model.model_copy(update=model)})


class Step:
    """A training step as in `learning.train`. Images are noise, because the duration does not depend on the pixels.

    Args:
        size, batch, channels: side in pixels, number and channels of the images.
    """

    def __init__(self, run: Run, size: int, device: torch.device, batch: int, channels: int = 1) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.model: Model = build_model(run, size).to(device).train()
        self.training, self.batch = run.training, batch
        self.trained = [value for value in self.model.parameters() if value.requires_grad]
        self.optimiser = build_optimiser(run.training, self.trained)
        generator = torch.Generator(device).manual_seed(0)
        self.images = torch.rand(batch, channels, size, size, generator=generator, device=device)
        self.labels = torch.arange(batch, device=device) % 5
        self.noise = self.model.draw_noise((batch,), generator)
        self.epoch = torch.tensor(COUPLED, device=device)

    def __call__(self) -> None:
        gradients = torch.autograd.grad(self.loss(), self.trained)
        clip(gradients, self.training.gradient_clip)
        self.optimiser.step(gradients)

    def loss(self) -> Tensor:
        """The loss of the batch."""
        return self.model(self.images, self.noise, self.epoch, self.labels)[0]


def without_kernels(work: Work) -> Other:
    """A reference: `work` without compiled kernels, in PyTorch's operators alone."""

    def take() -> None:
        with patch.object(kernels, "load", return_value=None):
            work()

    return Other(take, "PyTorch's operators alone, same rounds")


def operations(work: Work) -> int:
    """Number of floating-point operations in all matrix products and convolutions of one call of `work`.

    Compiled kernels are switched off for this call, because their operations cannot be counted.
    """
    with patch.object(kernels, "load", return_value=None), FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops())


def product(where: Where) -> tuple[Work, float]:
    """A matrix product in float32, and the number of its operations. Its rate counts as the machine's maximum.

    On a CPU, the product uses the faster of PyTorch's two libraries. On an AMD processor with AVX-512, MKL reaches half
    the rate of oneDNN.
    """
    side = 256 if where.quick else 8192 if where.device.type == "cuda" else 1024
    left, right = torch.rand(2, side, side, device=where.device)
    result = torch.empty_like(left)
    works: dict[str, Work] = {"torch": lambda: torch.mm(left, right, out=result)}
    if where.device.type == "cpu" and torch.backends.mkldnn.is_available():
        # The operator that `torch.compile` makes of a linear layer.
        one_dnn = torch.ops.mkldnn._linear_pointwise
        works["oneDNN"] = lambda: one_dnn(left, right, None, "none", [], "")
    samples = in_turn(works, where.device, 0.0)
    return works[min(works, key=lambda name: min(samples[name]))], 2 * side**3


def at_best(where: Where, needed: float, of_what: str) -> Other:
    """The duration of `needed` operations (of `of_what`) at the rate of a matrix product, timed in the same rounds."""
    work, each = product(where)
    return Other(work, f"{needed / 1e9:.3g} GFLOP of {of_what} at a matrix product's rate, same rounds", needed / each)


def copying(where: Where) -> tuple[Work, float]:
    """A copy of an array larger than the caches, and the number of bytes that it reads and writes."""
    size = (1 << 30 if where.device.type == "cuda" else 1 << 28) >> (6 if where.quick else 0)
    source = torch.rand(size // 4, device=where.device)
    target = torch.empty_like(source)
    return lambda: target.copy_(source), 2 * size


def machine(what: Literal["copy", "product"], where: Where) -> Timed:
    """The machine at best: time per GB that a copy reads and writes, or per 10^9 operations of a matrix product."""
    work, count = copying(where) if what == "copy" else product(where)
    return Timed(work, "ms/GB" if what == "copy" else "ms/GFLOP", count / 1e9)


# The generative model


def generative_step(where: Where) -> Step:
    """The training step of the generative model."""
    return Step(paper_run(GenerativeRun, **GENERATIVE), 28, where.device, where.few(128))


def generative_model(step: Step) -> GenerativeModel:
    """The model of a step of the generative model."""
    assert isinstance(step.model, GenerativeModel)
    return step.model


def generative(against: Literal["enumeration", "operators", "peer"], where: Where) -> Timed:
    """The training step of the generative model, compared with enumeration, PyTorch's operators or public code."""
    step = generative_step(where)
    if against == "peer":
        return of_one_thread(step, GENERATIVE_PEER)
    reference = enumerated_step(step) if against == "enumeration" else without_kernels(step)
    bound = at_best(where, operations(lambda: step.loss().backward()), "the step")
    return Timed(step, "ms/image", step.batch, bound, reference, note=f"16+16 capsules, batch {step.batch}")


def of_one_thread(step: Step, peer: Other) -> Timed:
    """A training step on one CPU thread, compared with `peer`: seconds per image of public code."""
    return Timed(step, "ms/image", step.batch, reference=Other(peer.seconds, peer.what, step.batch), threads=1)


def enumerated_step(step: Step) -> Other:
    """A reference: `step` with the bound of `EnumeratedModel`, which sums over an explicit choice of parent."""
    model = generative_model(step)
    form = EnumeratedModel(model)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)

    def take() -> None:
        optimiser.zero_grad()
        (form.loss(step.images, step.noise) / step.batch).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e3)
        optimiser.step()

    return Other(take, "TraceEnum_ELBO over an explicit choice of parent, same rounds; target: ratio 1.5")


def encoder(where: Where) -> Timed:
    """Forward and backward of the encoder alone: parts from pixels, objects from parts."""
    step = generative_step(where)
    model = generative_model(step)

    def take() -> None:
        model.zero_grad()
        y1, A1 = model.encode_parts(step.images)
        y0, A0 = model.encode_objects(y1, A1)
        (y1.sum() + A1.sum() + y0.sum() + A0.sum()).backward()

    return Timed(take, "ms/image", step.batch, at_best(where, operations(take), "products and convolutions"))


def renderer(where: Where) -> Timed:
    """Forward and backward of the renderer alone, at the poses that the encoder gives.

    The bound is the memory traffic of a renderer that stores a warped layer (colour and opacity) of each part. Forward,
    it writes and reads the layers, and writes the picture. Backward, it reads the layers, writes and reads their
    gradients, and reads the picture's gradient. The traffic of templates and poses is small in comparison.
    """
    step = generative_step(where)
    model = generative_model(step)
    with torch.no_grad():
        logits, found = model.encode_parts(step.images)
        leaves = [each.detach().requires_grad_() for each in (model.templates, found, logits.sigmoid())]
    upstream = torch.rand_like(step.images[:, 0])

    def drawing(draw: Callable[..., Tensor]) -> Work:
        return lambda: torch.autograd.grad(draw(*leaves, upstream.shape[-1]), leaves, upstream)

    moved = (5 * 2 * model.params.parts + 2) * upstream.numel() * 4
    copy, copied = copying(where)
    bound = Other(
        copy, f"{moved / 1e6:.3g} MB of warped layers and pictures at a copy's rate, same rounds", moved / copied
    )
    plainly = Other(drawing(render_plainly), "the same drawn step by step as the document writes it, same rounds")
    return Timed(drawing(render), "ms/image", step.batch, bound, plainly)


def render_plainly(templates: Tensor, A: Tensor, presence: Tensor, size: int) -> Tensor:
    """The same pictures `[B, S, S]` as `layers.rendering.render`, step by step as document 000 writes it.

    Templates are sampled at the pixels times all inverse poses. Opacities are multiplied by presences. Parts are
    then composited one by one.

    Args:
        templates: colour and opacity, `[P, 2, h, w]`.
        A: pose offsets of the parts, `[B, P, 6]`.
        presence: presences of the parts in [0, 1], `[B, P]`.
    """
    batch, parts = A.shape[:2]
    inverse = poses.invert(poses.to_matrix(A))  # (B, P, 2, 3)
    points = pixel_centres(A, size) @ inverse.transpose(-1, -2)  # (B, P, S S, 2)
    source = templates.expand(batch, *templates.shape).flatten(0, 1)
    drawn = F.grid_sample(source, points.reshape(-1, size, size, 2), align_corners=False)
    drawn = drawn.unflatten(0, (batch, parts))
    colour, opacity = drawn[:, :, 0], drawn[:, :, 1] * presence[..., None, None]
    picture = colour[:, 0] * opacity[:, 0]
    for part in range(1, parts):
        picture = torch.lerp(picture, colour[:, part], opacity[:, part])
    return picture


ADAM = AdamEngine(method="adam", bound="sampled", learning_rate=0.03, steps=3, tolerance=0.1)
L_BFGS = LBFGSEngine(method="l-bfgs", restarts=0, memory=10, steps=3, tolerance=0.1)
GAUSS_NEWTON = GaussNewtonEngine(method="gauss-newton", restarts=0, steps=3, tolerance=0.1)


def inference(engine: Engine, where: Where) -> Timed:
    """One evaluation by an optimiser of test-time inference. The study `optimise` counts evaluations per image. The
    last phase, which optimises objects alone and counts none, is left out.
    """
    step = Step(paper_run(GenerativeRun, **GENERATIVE), 28, where.device, where.few(512))
    model = generative_model(step).eval().requires_grad_(False)
    with torch.no_grad():
        states = pack(model.encode(step.images))

    def take(with_engine: Engine) -> Tensor:
        generator = torch.Generator(where.device).manual_seed(0)
        return minimise_bound(model, step.images, states, with_engine, generator, refine=False).evaluations.sum()

    count = float(take(engine))
    adam = Other(lambda: take(ADAM), "an evaluation of Adam, same rounds", count / float(take(ADAM)))
    note = f"{step.batch} images at once"
    return Timed(
        lambda: take(engine), "ms/image and evaluation", count, None, None if engine is ADAM else adam, note=note
    )


# Other models


def scae(one_thread: bool, where: Where) -> Timed:
    """The training step of the stacked capsule autoencoder."""
    step = Step(paper_run(SCAERun), 40, where.device, where.few(128))
    if one_thread:
        return of_one_thread(step, SCAE_PEER)
    bound = at_best(where, operations(lambda: step.loss().backward()), "the step")
    return Timed(step, "ms/image", step.batch, bound, note=f"batch {step.batch}")


def capsnet(iterations: int, one_thread: bool, where: Where) -> Timed:
    """The training step of CapsNet. Its bound: gradients of its two convolutions, with the ReLU between them."""
    step = Step(paper_run(CapsNetRun, **CAPSNET, iterations=iterations), 28, where.device, where.few(128))
    net = step.model
    assert isinstance(net, CapsNet)
    gradient = torch.randn_like(net.second(net.feature_maps(step.images)))
    parameters = [*net.first.parameters(), *net.second.parameters()]

    def convolutions() -> object:
        return torch.autograd.grad(net.second(net.feature_maps(step.images)), parameters, gradient)

    bound = Other(convolutions, "the two convolutions alone, same rounds; target: 1.3 times that at most")
    peer = Other(CAPSNET_PEER.seconds, CAPSNET_PEER.what, step.batch) if one_thread else None
    note = f"batch {step.batch}"
    return Timed(step, "ms/image", step.batch, bound, peer, threads=int(one_thread), note=note)


def iterative_inference(where: Where) -> Timed:
    """Gradients of a step of predictive coding (label clamped, L1). Bound: the second convolution and its gradient."""
    images = Step(paper_run(CapsNetRun), 28, where.device, where.few(128)).images
    net = build_model(paper_run(CapsNetRun, **CAPSNET, iterations=0), 28).to(where.device).requires_grad_(False)
    assert isinstance(net, CapsNet)
    layers = net.layers()
    activities = forward_pass(layers[:-1], images)
    target = torch.eye(CLASSES, device=where.device)[torch.arange(len(images)) % CLASSES]
    condition = InferCondition(output="predicted", label="clamped", penalty="L1", weight=1.0)
    features = net.feature_maps(images).detach().requires_grad_()
    gradient = torch.randn_like(net.second(features))

    def second_convolution() -> object:
        return torch.autograd.grad(net.second(features), features, gradient)

    bound = Other(second_convolution, "the second convolution and its derivative by its input, same rounds")
    return Timed(
        lambda: energies_and_gradients(layers, activities[0], activities, condition, target),
        "ms/image",
        len(images),
        bound,
        note=f"{len(images)} images at once",
    )


def matrix_step(iterations: int, where: Where) -> Step:
    """The training step of matrix capsules with 68,000 parameters."""
    runs = paper_params().runs.values()
    run = next(run for run in runs if isinstance(run, MatrixCapsulesRun) and run.model.types == [16, 16])
    run = run.model_copy(update={"model": run.model.model_copy(update={"iterations": iterations})})
    return Step(run, 32, where.device, 2 if where.quick else 64, channels=2)


def matrix_capsules(iterations: int, against: Literal["peer", "operators", "threads"], where: Where) -> Timed:
    """The training step of matrix capsules: by all threads if `against` is "threads", else by one, as public code."""
    step = matrix_step(iterations, where)
    assert isinstance(step.model, MatrixCapsules)
    needed = step.batch * operations_of_routing(vote_numbers(step.model), iterations, step.model.params.pose_side)
    reference = None
    if against == "peer":
        what = "public PyTorch code, a thread of another CPU; target: 10 times as fast"
        reference = Other(MATRIX_PEERS[iterations], what, step.batch)
    elif against == "operators":
        reference = without_kernels(step)
    bound = at_best(where, needed, "routing")
    threads = 0 if against == "threads" else 1
    return Timed(step, "ms/image", step.batch, bound, reference, threads, f"batch {step.batch}")


def vote_numbers(model: MatrixCapsules) -> int:
    """Number of components of all votes for one image, summed over layers."""
    return sum(
        len(layer.fields.children) * layer.full_transformations().numel() // model.params.pose_side**2
        for layer in model.routed
        if isinstance(layer, RoutedCapsules)
    )


def operations_of_routing(votes: int, iterations: int, side: int) -> int:
    """Floating-point operations of routing in a training step, per image: two for each multiply-add of the kernel.

    `votes` is the number of components of votes. The kernel computes a component anew for each sum below, by `side`
    multiply-adds. Forward, it then adds 1 for the plain mean, 2 for moments in each iteration, and 2 for log densities
    between two iterations. Backward, it adds 2 for the gradient by the weights in each iteration, and 2 for moments of
    the gradient by the log densities between two iterations. The gradient by the vote takes 1, and 2 for each of these
    backward sums. The gradients by pose and transformation take `side` each.
    """
    forward = (side + 1) + iterations * (side + 2) + (iterations - 1) * (side + 2)
    backward = iterations * (side + 2) + (iterations - 1) * (side + 2)
    once = (side + 1) + 2 * (2 * iterations - 1) + 2 * side
    return 2 * votes * (forward + backward + once)


def regression(decision: Decision, size: int, where: Where) -> Timed:
    """An iteration of EM for capsule regression (equation 26) at the document's sizes, with thresholds and no
    validation. The bound is its two matrix products for each block of examples. Inputs are noise, because the
    duration does not depend on them.
    """
    n, features = 500 if where.quick else 50_000, 196
    generator = torch.Generator(where.device).manual_seed(0)
    X = torch.randn(n, features, generator=generator, device=where.device)
    y = torch.arange(n, device=where.device) % CLASSES
    problems = Problems(X, y, build_architecture(decision, size, CLASSES))
    W = problems.subspace_start()
    every = torch.arange(len(W))
    thresholds = torch.full((len(W),), 0.4, device=where.device)
    blocks = [
        (problems.examples.inputs[rows], (W if which is None else W[which]).flatten(0, 2))
        for rows, which, _ in problems.examples.blocks(problems.architecture.capsules, W[0, ..., 0].numel())
    ]
    return Timed(
        lambda: problems.update(problems.passed(W, every, thresholds, problems.examples).moments, every),
        bound=Other(
            lambda: [(weights @ rows.T) @ rows for rows, weights in blocks],
            "its matrix products alone, same rounds; target: 1.5 times that at most",
        ),
        note=f"{n:,} x {features} float32, {CLASSES} classes",
    )


ROWS: dict[str, Callable[[Where], Timed]] = {
    "machine: copy": partial(machine, "copy"),
    "machine: matrix product": partial(machine, "product"),
    "generative: training step": partial(generative, "enumeration"),
    "generative: training step, compiled kernels": partial(generative, "operators"),
    "generative: training step, one CPU thread": partial(generative, "peer"),
    "encoder: forward and backward": encoder,
    "renderer: forward and backward": renderer,
    "free-form: Adam, sampled": partial(inference, ADAM),
    "free-form: L-BFGS": partial(inference, L_BFGS),
    "free-form: Gauss-Newton": partial(inference, GAUSS_NEWTON),
    "scae: training step": partial(scae, False),
    "scae: training step, one CPU thread": partial(scae, True),
    "capsnet: training step, 0 iterations": partial(capsnet, 0, False),
    "capsnet: training step, 3 iterations": partial(capsnet, 3, False),
    "capsnet: training step, 0 iterations, one CPU thread": partial(capsnet, 0, True),
    "capsnet: training step, 3 iterations, one CPU thread": partial(capsnet, 3, True),
    "capsnet: a step of iterative inference": iterative_inference,
    "matrix capsules: training step, 2 iterations": partial(matrix_capsules, 2, "threads"),
    "matrix capsules: training step, 3 iterations": partial(matrix_capsules, 3, "threads"),
    "matrix capsules: training step, 2 iterations, one CPU thread": partial(matrix_capsules, 2, "peer"),
    "matrix capsules: training step, 3 iterations, one CPU thread": partial(matrix_capsules, 3, "peer"),
    "matrix capsules: training step, 3 iterations, one CPU thread, compiled kernel": partial(
        matrix_capsules, 3, "operators"
    ),
    **{
        f"regression: EM iteration, multiclass, d = {d}": partial(regression, "multiclass", d) for d in (1, 2, 4, 8, 16)
    },
    "regression: EM iteration, all-vs-all, d = 16": partial(regression, "all-vs-all", 16),
}
