"""Compares incremental and online EM with batch EM, by the number of passes over the data.

Document 002 leaves this comparison open (section 4). Its results come from batch EM with momentum (equation 27). Here
batch and incremental EM are run with and without momentum. The M-step, which updates the weights W, needs two sums over
examples x, called moments: the sum of x x^T, and the sum of (posterior mean) x^T. Incremental and online EM keep
moments, and update them batch by batch:

- Incremental EM (Neal and Hinton 1998) keeps the moments of every batch of a data set, and replaces the moments of one
  batch at a time. An update of W uses the latest moments of all batches. Incremental EM has the same fixed points as
  EM: if replacements no longer change the moments, all moments are those under W, and the M-step for them gives W.
  Replacements and updates raise Neal and Hinton's free energy, so incremental EM converges like EM.
- Online EM (Cappe and Moulines 2009) is for unlimited data. It keeps running means of the moments, with step sizes
  1, 3^-alpha, 4^-alpha, ... (1/2 < alpha <= 1). If the expected change of the running means is 0, they are the expected
  moments under W. Then W is a fixed point of EM on the distribution that batches are drawn from.
"""

import math
from collections import deque
from collections.abc import Iterator
from itertools import islice, pairwise

import pandas as pd
import torch
from torch import Tensor

from pipeline.data.datasets import PARTS
from pipeline.results.outcome import Outcome, one
from pipeline.systems.regression.model.architectures import Architecture, build_architecture
from pipeline.systems.regression.model.expectation_maximisation import EStep, Examples, Problems, class_moments
from pipeline.systems.regression.model.fits import Inputs, errors, misclassified
from pipeline.systems.regression.settings import OnlineStudy


def run(inputs: Inputs, study: OnlineStudy) -> Outcome:
    """Run all methods. The table has a row per method and pass: normalised training log-loss (see `fits.fit`) and
    errors on all parts of the data. All methods begin with the weights of equation 28. No threshold is set (nu = 0 in
    equation 25). Updates have momentum only if the method's name says so.
    """
    X, y = inputs.X["train"], inputs.y["train"]
    problems = Problems(X, y, build_architecture("multiclass", study.size, inputs.classes))
    W, which = problems.subspace_start(), torch.arange(1)
    batches = split(problems.examples, study.batches, torch.Generator().manual_seed(study.seed))
    online = Online(problems.architecture, problems.own_coordinates(W), ridge=1e-6, rate=study.rate)

    def online_passes() -> Iterator[Tensor]:
        generator = torch.Generator().manual_seed(study.seed)
        while True:
            for rows in torch.randperm(len(X), generator=generator).tensor_split(study.batches):
                online.learn(X[rows.to(X.device)].double(), y[rows.to(y.device)])
            yield problems.whitened(online.W)

    # Batch EM is incremental EM with a single batch. Incremental EM begins with an E-step on all batches and one
    # update, which count as its first pass. Every later pass has an update per batch.
    methods = {
        "batch": incremental(problems, [problems.examples], W, 0.0),
        "batch, momentum": incremental(problems, [problems.examples], W, study.momentum),
        "incremental": islice(incremental(problems, batches, W, 0.0), 0, None, study.batches),
        "incremental, momentum": islice(incremental(problems, batches, W, study.pass_momentum), 0, None, study.batches),
        "online": online_passes(),
    }
    rows, wrong = [], {}
    for name, method in methods.items():
        for done, weights in enumerate(islice(method, study.passes), start=1):
            found = problems.passed(weights, which, None, problems.examples)
            log_loss = -float(found.log_likelihood[0]) / (len(X) * math.log(inputs.classes))
            own = problems.own_coordinates(weights).float()
            shares = errors(problems.architecture, own, inputs)
            rows.append({"method": name, "passes": done, "log_loss": log_loss, **shares})
        wrong[name] = misclassified(problems.architecture, own, inputs)
    table = pd.DataFrame(rows)
    last = table.groupby("method")[["log_loss", *PARTS]].last()
    goal = last.T["batch"] + 1e-12
    # Passes that a metric needs to reach its last value in batch EM without momentum. `study.passes` + 1 means never.
    reached = {
        key: table[table[key] <= goal[key]].groupby("method")["passes"].min() for key in ("log_loss", "validation")
    }
    passes = pd.DataFrame(reached, index=last.index).fillna(study.passes + 1)
    numbers = {
        "last": last.map(one).to_dict("index"),
        # For each pair of methods, the share of test images that exactly one of them misclassifies after the last pass.
        "disagreement": {a: {b: one(float((wrong[a] != wrong[b]).double().mean())) for b in wrong} for a in wrong},
        "passes": study.passes,
        "reached": passes.map(one).to_dict("index"),
    }
    return Outcome("online", table, numbers, tuple(f"last.{method}.test" for method in last.index))


def incremental(problems: Problems, batches: list[Examples], W: Tensor, momentum: float) -> Iterator[Tensor]:
    """Yield the weights after every update of incremental EM, which visits fixed batches in turn.

    It starts with an E-step on every batch, so that the first update equals batch EM's. `W [K, C, d, r]` and all
    results are whitened weights (see `expectation_maximisation`). Each update adds the change of W over the last pass,
    times `momentum` (gamma in equation 27). If it added the change in the last update instead, the gain in speed would
    be only a few percent, because the moments in an update come from the weights of a whole pass. Momentum makes batch
    EM 1 / (1 - gamma) times as fast.
    """
    everyone, zeros = torch.arange(len(W)), W.new_zeros(len(W))
    kept = torch.stack([problems.passed(W, everyone, zeros, batch).moments for batch in batches])  # (B, K, C, d, r)
    earlier = deque([W] * len(batches), maxlen=len(batches))
    while True:
        for b, batch in enumerate(batches):
            change = W - earlier[0]
            earlier.append(W)
            W = problems.update(kept.sum(0), everyone) + momentum * change
            yield W
            kept[b] = problems.passed(W, everyone, zeros, batch).moments


def split(examples: Examples, batches: int, generator: torch.Generator) -> list[Examples]:
    """Divide examples into random batches, with each class divided among the batches as equally as possible."""
    by_class = [start + torch.randperm(stop - start, generator=generator) for start, stop in pairwise(examples.bounds)]
    parts = zip(*(order.tensor_split(batches) for order in by_class), strict=True)
    inputs = examples.inputs
    return [Examples(inputs[torch.cat(rows).to(inputs.device)], list(map(len, rows))) for rows in parts]


class Online:
    """Online EM that starts from weights `W [K, C, d, p]`, float64. Every batch updates running means of the moments.
    The step size after t batches is (t + 2)^-`rate`, but 1 if t = 0. Inputs are not whitened. `ridge`: see `Problems`.
    """

    def __init__(self, architecture: Architecture, W: Tensor, *, ridge: float, rate: float) -> None:
        self.architecture, self.W, self.ridge, self.rate, self.seen = architecture, W, ridge, rate, 0
        self.inputs = W.new_zeros(architecture.classes, W.shape[-1], W.shape[-1])  # running mean of X_c^T X_c / n
        self.posteriors = torch.zeros_like(W)  # running mean of E[h | x, y] x^T
        self._pass = EStep(architecture, W.dtype, W.device)

    def learn(self, X: Tensor, y: Tensor) -> None:
        """Update running means and weights with a batch of inputs `X [n, p]`, float64, and their classes `y [n]`."""
        counts = torch.bincount(y, minlength=self.architecture.classes)
        examples = Examples(X[y.argsort(stable=True)], counts.tolist())
        found = self._pass(self.W, torch.arange(len(self.W)), self.W.new_zeros(len(self.W)), examples)
        step = (self.seen + 2.0) ** -self.rate if self.seen else 1.0
        self.inputs = torch.lerp(self.inputs, class_moments(X, y, self.architecture.classes) / len(X), step)
        self.posteriors = torch.lerp(self.posteriors, found.moments / len(X), step)
        gram = self.architecture.sum_seen(self.inputs)  # (K or 1, p, p)
        power = gram.diagonal(dim1=1, dim2=2).mean(-1)
        gram = gram + self.ridge * power[:, None, None] * torch.eye(gram.shape[-1]).to(gram)
        self.W = (self.posteriors.flatten(1, 2) @ torch.linalg.pinv(gram, hermitian=True)).view_as(self.W)
        self.seen += 1
