"""Capsule regression as a scikit-learn classifier (Saul 2021, document 002)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from pipeline.systems.regression.model.architectures import Architecture, Decision, build_architecture, class_scores
from pipeline.systems.regression.model.expectation_maximisation import Problems
from pipeline.systems.regression.model.online import Online
from pipeline.systems.regression.model.schedule import ROUNDS, Round, fit

_DTYPES = {"float32": torch.float32, "float64": torch.float64}
_THRESHOLDS = tuple(each.threshold for each in ROUNDS)
_PATIENCE = tuple(each.patience for each in ROUNDS)
_ROWS = 65_536
"""Inputs whose classes are predicted together."""


class CapsuleRegression(ClassifierMixin, BaseEstimator):
    """Classification by vectors of competing length, fit by expectation maximisation.

    Each class has a capsule, a matrix that maps an input to a vector of `capsule_size` numbers with Gaussian noise. The
    probability of a class is the share of its vector's squared length in the sum over classes. Capsules of size 1 give
    a linear model like logistic regression; larger ones span subspaces in which a class varies.

    Args:
        capsule_size: dimensions of a capsule: one number for all, a sequence in the order of the sorted classes, or a
            dictionary by class.
        decision: "multiclass": one model of all classes; "one-vs-all": one for each class against all others;
            "all-vs-all": one for each pair of classes, which vote.
        fit_intercept: append a one to every input. Lengths are even functions of the input: without it, x and -x give
            the same result.
        ridge: penalty on squared weights, in units of a feature's mean square times the number of examples.
        momentum: gamma of equation 27.
        thresholds: nu of each round of training (equation 26).
        patience: for each round, the number of iterations without a lower validation error after which it ends.
        max_iter: maximum number of iterations.
        validation_fraction: share of each class's examples held out to end rounds and choose the weights. If it is 0 or
            too small for one example, the training examples are used instead.
        start: "subspace", each class's leading directions (equation 28), or "random".
        start_sd: sd of the weights in a random start.
        online_rate: alpha of `partial_fit`: the step size of its t-th call is (t + 2)^-alpha.
        dtype: "float32" or "float64", for the iterations.
        device: "cpu", "cuda" or another torch device.
        random_state: seed or generator for the split and for a random start.

    Attributes:
        classes_: the class labels, sorted.
        capsules_: weights `[problems, capsules, size, features (+ 1)]`; rows beyond a capsule's size are zero.
        n_iter_: number of iterations, the maximum over the problems.
        n_features_in_: number of features.
        history_: one row per iteration and problem, see `schedule.Fit`; None after `partial_fit`.
    """

    def __init__(
        self,
        capsule_size: int | Sequence[int] | Mapping[Any, int] = 2,
        *,
        decision: Decision = "multiclass",
        fit_intercept: bool = True,
        ridge: float = 0.0,
        momentum: float = 0.9,
        thresholds: Sequence[float] = _THRESHOLDS,
        patience: Sequence[int] = _PATIENCE,
        max_iter: int = 5000,
        validation_fraction: float = 0.1,
        start: Literal["subspace", "random"] = "subspace",
        start_sd: float = 0.01,
        online_rate: float = 0.6,
        dtype: Literal["float32", "float64"] = "float32",
        device: str = "cpu",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.capsule_size = capsule_size
        self.decision = decision
        self.fit_intercept = fit_intercept
        self.ridge = ridge
        self.momentum = momentum
        self.thresholds = thresholds
        self.patience = patience
        self.max_iter = max_iter
        self.validation_fraction = validation_fraction
        self.start = start
        self.start_sd = start_sd
        self.online_rate = online_rate
        self.dtype = dtype
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> CapsuleRegression:
        """Fit to inputs `X [n, features]` and their labels `y [n]`.

        Raises:
            ValueError: labels of one class only, a class whose examples (or the dimensions they span) are fewer than
                its capsule's size, all-zero inputs, or a parameter out of its range.
        """
        self._check_parameters()
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        self._online: Online | None = None
        architecture = self._architecture()
        random = check_random_state(self.random_state)
        held = self._held_out(numbers, random)
        inputs, labels = self._inputs(X), torch.from_numpy(numbers).to(self.device)
        training = torch.from_numpy(~held).to(self.device)
        try:
            problems = Problems(
                inputs[training], labels[training], architecture, ridge=self.ridge, dtype=_DTYPES[self.dtype]
            )
            W = self._start(problems, random)
        except ValueError as error:
            raise ValueError(self._named(str(error))) from None
        validation = problems.sort(inputs[~training], labels[~training]) if held.any() else problems.examples
        found = fit(
            problems,
            W,
            validation,
            momentum=self.momentum,
            rounds=[Round(nu, patience) for nu, patience in zip(self.thresholds, self.patience, strict=True)],
            most_iterations=self.max_iter,
        )
        self.capsules_ = problems.own_coordinates(found.W).cpu().numpy()
        self._moments = (problems.moments / len(problems.examples.inputs)).cpu().numpy()  # for `partial_fit`
        self._fitted_on = len(problems.examples.inputs)
        self.n_iter_ = int(found.iterations.max())
        self.history_: pd.DataFrame | None = found.history
        return self

    def partial_fit(self, X: Any, y: Any, classes: ArrayLike | None = None) -> CapsuleRegression:
        """One step of online EM on a batch of inputs `X [n, features]` and their labels `y [n]`.

        After `fit` it continues from its result, as if the examples of `fit` had come in batches of this size.

        Args:
            classes: all possible labels; required at the first call.

        Raises:
            ValueError: a label is not among the classes, or classes are missing in the first call or differ later.
        """
        first = not hasattr(self, "capsules_")
        self._check_parameters()
        X, y = validate_data(self, X, y, dtype=np.float64, reset=first)
        check_classification_targets(y)
        if first:
            if classes is None:
                raise ValueError("classes must be passed on the first call to partial_fit")
            self.classes_ = np.unique(np.asarray(classes))
        elif classes is not None and not np.array_equal(self.classes_, np.unique(np.asarray(classes))):
            raise ValueError(f"classes {np.unique(np.asarray(classes))} differ from those of the first call")
        unseen = np.setdiff1d(y, self.classes_)
        if len(unseen):
            raise ValueError(f"y holds labels that are not in classes: {unseen}")
        numbers = torch.from_numpy(np.searchsorted(self.classes_, y)).to(self.device)
        inputs = self._inputs(X)
        online = self._begin_online(inputs, numbers) if first else self._online or self._continue_online(len(inputs))
        online.learn(inputs, numbers)
        self._online, self.history_ = online, None
        self.capsules_ = online.W.cpu().numpy()
        self.n_iter_ = online.seen
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable label of each input `[n, features]`, or the one with the most votes."""
        scores = self.predict_proba(X)  # raises if the estimator is not fitted
        return self.classes_[scores.argmax(axis=1)]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """A score for each class, `[n, classes]`; rows sum to one.

        With one problem these are the model's exact probabilities (equation 16); with several, see `class_scores`.
        """
        check_is_fitted(self)
        inputs = self._inputs(validate_data(self, X, dtype=np.float64, reset=False))
        W = torch.from_numpy(self.capsules_).to(self.device)
        architecture = self._architecture()
        return torch.cat([class_scores(architecture, W, rows) for rows in inputs.split(_ROWS)]).cpu().numpy()

    def hidden_means(self, X: Any) -> NDArray[np.float64]:
        """The capsules' mean vectors E[h | x] of each input, `[n, problems, capsules, size]`."""
        check_is_fitted(self)
        inputs = self._inputs(validate_data(self, X, dtype=np.float64, reset=False)).cpu().numpy()
        return np.einsum("np,kcdp->nkcd", inputs, self.capsules_)

    def _inputs(self, X: NDArray[np.float64]) -> Tensor:
        whole = np.column_stack([X, np.ones(len(X))]) if self.fit_intercept else X
        return torch.from_numpy(np.ascontiguousarray(whole)).to(self.device)

    def _architecture(self) -> Architecture:
        sizes = self.capsule_size
        if isinstance(sizes, Mapping):
            known = {key: int(size) for key, size in sizes.items()}
            missing = [label for label in self.classes_.tolist() if label not in known]
            if missing:
                raise ValueError(f"capsule_size has no entry for {missing}")
            sizes = [known[label] for label in self.classes_.tolist()]
        if len(self.classes_) < 2:
            raise ValueError(f"y holds one class only ({self.classes_[0]}): classification needs two or more")
        whole = sizes if isinstance(sizes, Sequence) else int(sizes)
        return build_architecture(self.decision, whole, len(self.classes_))

    def _held_out(self, numbers: NDArray[np.intp], random: np.random.RandomState) -> NDArray[np.bool_]:
        """Mask of the validation examples: the same share of each class, which keeps at least one to train on."""
        held = np.zeros(len(numbers), bool)
        for c in range(len(self.classes_)):
            rows = random.permutation(np.flatnonzero(numbers == c))
            held[rows[: min(round(self.validation_fraction * len(rows)), len(rows) - 1)]] = True
        return held

    def _start(self, problems: Problems, random: np.random.RandomState) -> Tensor:
        if self.start == "subspace":
            return problems.subspace_start()
        generator = torch.Generator().manual_seed(int(random.randint(2**31 - 1)))
        return problems.random_start(self.start_sd, generator)

    def _begin_online(self, inputs: Tensor, numbers: Tensor) -> Online:
        architecture = self._architecture()
        random = check_random_state(self.random_state)
        shape = (*architecture.sizes.shape, architecture.size, inputs.shape[1])
        W = torch.from_numpy(random.normal(0.0, self.start_sd, shape)).to(self.device)
        W = W * architecture.used.unsqueeze(-1).to(W)
        if self.start == "subspace":
            try:
                problems = Problems(inputs, numbers, architecture, dtype=torch.float64)
                W = problems.own_coordinates(problems.subspace_start())
            except ValueError:  # too few examples of some class in this first batch: use the random start
                pass
        return Online(architecture, W, ridge=self.ridge, rate=self.online_rate)

    def _continue_online(self, batch: int) -> Online:
        W = torch.from_numpy(self.capsules_).to(self.device)
        online = Online(self._architecture(), W, ridge=self.ridge, rate=self.online_rate)
        online.resume(torch.from_numpy(self._moments).to(self.device), max(self._fitted_on // batch, 1))
        return online

    def _named(self, message: str) -> str:
        """An error message about class numbers, followed by their labels."""
        labels = ", ".join(f"{c}: {label}" for c, label in enumerate(self.classes_.tolist()))
        return f"{message} (classes: {labels})" if len(self.classes_) <= 20 else message

    def _check_parameters(self) -> None:
        """Raise ValueError for a parameter out of its range."""
        wrong = []
        if self.decision not in ("multiclass", "one-vs-all", "all-vs-all"):
            wrong.append(f"decision is {self.decision!r}: 'multiclass', 'one-vs-all' or 'all-vs-all'")
        if self.start not in ("subspace", "random"):
            wrong.append(f"start is {self.start!r}: 'subspace' or 'random'")
        if self.dtype not in _DTYPES:
            wrong.append(f"dtype is {self.dtype!r}: 'float32' or 'float64'")
        if len(self.thresholds) != len(self.patience) or not len(self.thresholds):
            wrong.append("thresholds and patience must be as many, and one at least")
        if not all(0 <= nu <= 1 for nu in self.thresholds):
            wrong.append(f"thresholds are {tuple(self.thresholds)}: each from 0 to 1")
        if not all(patience >= 1 for patience in self.patience):
            wrong.append(f"patience is {tuple(self.patience)}: each 1 or more")
        ranges = {
            "ridge": (self.ridge, 0, float("inf")),
            "momentum": (self.momentum, 0, 0.999),
            "max_iter": (self.max_iter, 1, float("inf")),
            "validation_fraction": (self.validation_fraction, 0, 0.9),
            "start_sd": (self.start_sd, 1e-12, float("inf")),
            "online_rate": (self.online_rate, 0.5, 1),
        }
        for name, (value, low, high) in ranges.items():
            if not low <= value <= high:
                wrong.append(f"{name} is {value}: from {low} to {high}")
        if wrong:
            raise ValueError("; ".join(wrong))
