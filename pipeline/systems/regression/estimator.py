"""Capsule regression as a scikit-learn classifier (Saul 2021, document 002)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from pipeline.systems.regression.examples import WeightedExamples, weighted
from pipeline.systems.regression.model.architectures import (
    Architecture,
    Decision,
    build_architecture,
    coupled_probabilities,
    decision_values,
)
from pipeline.systems.regression.model.expectation_maximisation import Problems
from pipeline.systems.regression.model.online import Online
from pipeline.systems.regression.model.schedule import fit
from pipeline.systems.regression.settings import ScheduleParams

_DTYPES = {"float32": torch.float32, "float64": torch.float64}
_ROWS = 65_536
"""Inputs whose classes are predicted together."""


class CapsuleRegression(ClassifierMixin, BaseEstimator):
    """Classification by vectors of competing length, fit by expectation maximisation.

    Each class has a capsule, a matrix that maps an input to a vector of `capsule_size` numbers with Gaussian noise. The
    probability of a class is the share of its vector's squared length in the sum over classes. Capsules of size 1 give
    a linear model like logistic regression; larger ones span subspaces in which a class varies.

    Args:
        capsule_size: dimensions of a capsule: one integer for all, a sequence in the order of the sorted classes, or a
            dictionary by class.
        decision: "multiclass": one model of all classes; "one-vs-all": one for each class against all others;
            "all-vs-all": one for each pair of classes, which vote.
        class_weight: weights of the classes, by which sample weights are multiplied: a dictionary by class (1 for those
            without an entry), "balanced" for the same sum of weights in all classes, or None for 1.
        fit_intercept: append a one to every input. Lengths are even functions of the input: without it, x and -x give
            the same result.
        ridge: penalty on squared weights, in units of a feature's mean square times the number of examples.
        momentum: gamma of equation 27.
        thresholds: nu of each round of training (equation 26).
        patience: for each round, the number of iterations without a lower validation error after which it ends.
        max_iter: maximum number of iterations.
        validation_fraction: share of each class's examples, by weight, held out to end rounds and choose the weights.
            If it is 0 or too small for one example, the training examples are used instead.
        start: "subspace", each class's leading directions (equation 28), or "random".
        start_sd: sd of the weights in a random start.
        online_rate: alpha of `partial_fit`: the step size of its first call is 1, of its t-th (t + 1)^-alpha.
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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "capsule_size": [Interval(Integral, 1, None, closed="left"), "array-like", dict],
        "decision": [StrOptions({"multiclass", "one-vs-all", "all-vs-all"})],
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "fit_intercept": ["boolean"],
        "ridge": [Interval(Real, 0, None, closed="left")],
        "momentum": [Interval(Real, 0, 1, closed="left")],
        "thresholds": ["array-like"],
        "patience": ["array-like"],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "validation_fraction": [Interval(Real, 0, 0.9, closed="both")],
        "start": [StrOptions({"subspace", "random"})],
        "start_sd": [Interval(Real, 0, None, closed="neither")],
        "online_rate": [Interval(Real, 0.5, 1, closed="both")],
        "dtype": [StrOptions(set(_DTYPES))],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        capsule_size: int | Sequence[int] | Mapping[Any, int] = 2,
        *,
        decision: Decision = "multiclass",
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        fit_intercept: bool = True,
        ridge: float = 0.0,
        momentum: float = 0.9,
        thresholds: Sequence[float] = (0.8, 0.6, 0.4, 0.2, 0.0),
        patience: Sequence[int] = (128, 64, 32, 16, 8),
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
        self.class_weight = class_weight
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

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> CapsuleRegression:
        """Fit to inputs `X [n, features]` and their labels `y [n]`.

        Args:
            sample_weight: `[n]`, numbers of at least 0. An example of weight 2 counts as two copies of it, also where
                examples are held out, and one of weight 0 is as though it were not there.

        Raises:
            ValueError: labels of one class only, a class whose examples (or the dimensions they span) are fewer than
                its capsule's size, all-zero inputs, weights that are no weights, or a parameter out of its range.
        """
        self._validate_params()
        schedule = ScheduleParams(
            momentum=float(self.momentum),
            thresholds=np.asarray(self.thresholds).tolist(),
            patience=np.asarray(self.patience).tolist(),
            most_iterations=int(self.max_iter),
        )
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        given = weighted(X, y, sample_weight, self.class_weight)
        self.classes_, numbers = np.unique(given.y, return_inverse=True)
        self._online: Online | None = None
        architecture = self._architecture()
        random = check_random_state(self.random_state)
        examples = WeightedExamples(given.X, numbers, given.weights).distinct(int(random.randint(2**31 - 1)))
        held = examples.held_out(self.validation_fraction)
        try:
            X_train, y_train, weights = self._tensors(examples.take(~held))
            dtype = _DTYPES[self.dtype]
            problems = Problems(X_train, y_train, architecture, ridge=self.ridge, dtype=dtype, sample_weights=weights)
            W = self._start(problems, random)
        except ValueError as error:
            raise ValueError(self._named(str(error))) from None
        validation = problems.sort(*self._tensors(examples.take(held))) if held.any() else problems.examples
        state, history = fit(problems, W, validation, schedule)
        self.capsules_ = problems.own_coordinates(state.best).cpu().numpy()
        self._moments = (problems.moments / problems.total).cpu().numpy()  # for `partial_fit`
        self._fitted_on = problems.total
        self.n_iter_ = int(state.iterations.max())
        self.history_: pd.DataFrame | None = history
        return self

    def partial_fit(
        self, X: Any, y: Any, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> CapsuleRegression:
        """One step of online EM on a batch of inputs `X [n, features]` and their labels `y [n]`.

        After `fit` it continues from its result, as if the examples of `fit` had come in batches of this size.

        Args:
            classes: all possible labels; required at the first call.
            sample_weight: `[n]`, as in `fit`. The batch's weighted means count as much as those of any other batch.

        Raises:
            ValueError: a label is not among the classes, classes are missing in the first call or differ later, or
                `class_weight` is "balanced", which one batch cannot tell.
        """
        first = not hasattr(self, "capsules_")
        self._validate_params()
        if isinstance(self.class_weight, str):
            raise ValueError(
                "class_weight is 'balanced', but partial_fit sees one batch at a time: pass a dictionary with the "
                "weights of sklearn.utils.class_weight.compute_class_weight('balanced', ...)"
            )
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
        batch = weighted(X, y, sample_weight, self.class_weight, self.classes_)
        numbered = WeightedExamples(batch.X, np.searchsorted(self.classes_, batch.y), batch.weights)
        inputs, numbers, sample_weights = self._tensors(numbered)
        total = len(inputs) if sample_weights is None else float(sample_weights.sum())
        online = self._begin_online(inputs, numbers) if first else self._online or self._continue_online(total)
        online.learn(inputs, numbers, sample_weights)
        self._online, self.history_ = online, None
        self.capsules_ = online.W.cpu().numpy()
        self.n_iter_ = online.seen
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The label of each input `[n, features]` by the document's rule: the most probable one, or in all-vs-all the
        one with the most votes of the pairs. The latter need not have the highest probability, see `predict_proba`.
        """
        values = self.decision_function(X)  # raises if the estimator is not fitted
        return self.classes_[values.argmax(axis=1) if values.ndim == 2 else (values > 0).astype(int)]

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """The numbers that `predict` compares, `[n, classes]` in the order of `classes_`: the highest one decides.

        multiclass: log-probabilities. one-vs-all: log-odds of each class against all others. all-vs-all: the number of
        votes, and less than one for the sum of the class's probabilities in its pairs, which breaks ties.

        With two classes, one number for each input `[n]`, as usual in scikit-learn: the log-odds of `classes_[1]`,
        which is predicted if they are positive.
        """
        values = self._for_rows(decision_values, X)
        return values if len(self.classes_) > 2 else values[:, 1] - values[:, 0]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of the classes, `[n, classes]` in the order of `classes_`; rows sum to one.

        multiclass, or two classes: the model's exact probabilities (equation 16). one-vs-all: each class's probability
        against all others, normalised. all-vs-all: the probabilities of all pairs, coupled by the second method of Wu,
        Lin and Weng (2004), as in LIBSVM. There the most probable class can differ from that of `predict`, as votes
        count the same however narrow they are; with the other two decisions, and with two classes, it is the same.

        The default rounds of training look for few errors and leave probabilities too low for the predicted class:
        calibrate them, for example with `sklearn.calibration.CalibratedClassifierCV`, before relying on them.
        """
        return self._for_rows(coupled_probabilities, X)

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Logarithms of `predict_proba`, `[n, classes]`."""
        probabilities: NDArray[np.float64] = np.log(self.predict_proba(X))
        return probabilities

    def hidden_means(self, X: Any) -> NDArray[np.float64]:
        """The capsules' mean vectors E[h | x] of each input, `[n, problems, capsules, size]`."""
        check_is_fitted(self)
        inputs = self._inputs(validate_data(self, X, dtype=np.float64, reset=False)).cpu().numpy()
        return np.einsum("np,kcdp->nkcd", inputs, self.capsules_)

    def _inputs(self, X: NDArray[np.float64]) -> Tensor:
        whole = np.column_stack([X, np.ones(len(X))]) if self.fit_intercept else X
        return torch.from_numpy(np.ascontiguousarray(whole)).to(self.device)

    def _for_rows(self, function: Callable[[Architecture, Tensor, Tensor], Tensor], X: Any) -> NDArray[np.float64]:
        """A function of the architecture, its weights and inputs, for all inputs `X`, some rows at a time."""
        check_is_fitted(self)
        inputs = self._inputs(validate_data(self, X, dtype=np.float64, reset=False))
        W = torch.from_numpy(self.capsules_).to(self.device)
        architecture = self._architecture()
        return torch.cat([function(architecture, W, rows) for rows in inputs.split(_ROWS)]).cpu().numpy()

    def _tensors(self, examples: WeightedExamples) -> tuple[Tensor, Tensor, Tensor | None]:
        """Inputs, classes and weights."""
        weights = None if examples.weights is None else torch.from_numpy(examples.weights).to(self.device)
        return self._inputs(examples.X), torch.from_numpy(examples.y).to(self.device), weights

    def _architecture(self) -> Architecture:
        """Raises `ValueError` if there is one class only, or no size for each of them."""
        classes = self.classes_.tolist()
        if len(classes) < 2:
            raise ValueError(f"y holds one class only ({classes[0]}): classification needs two or more")
        sizes: Any = self.capsule_size
        if isinstance(sizes, Mapping):
            if missing := [label for label in classes if label not in sizes]:
                raise ValueError(f"capsule_size has no entry for {missing}")
            sizes = [sizes[label] for label in classes]
        sizes = [sizes] * len(classes) if isinstance(sizes, Integral) else list(sizes)
        if len(sizes) != len(classes):
            raise ValueError(f"capsule_size is {sizes}: {len(classes)} sizes, one for each class, are needed")
        if not all(isinstance(size, Integral) and int(size) >= 1 for size in sizes):
            raise ValueError(f"capsule_size is {sizes}: integers of at least 1 are needed")
        return build_architecture(self.decision, [int(size) for size in sizes], len(classes))

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

    def _continue_online(self, batch: float) -> Online:
        W = torch.from_numpy(self.capsules_).to(self.device)
        online = Online(self._architecture(), W, ridge=self.ridge, rate=self.online_rate)
        online.resume(torch.from_numpy(self._moments).to(self.device), max(int(self._fitted_on / batch), 1))
        return online

    def _named(self, message: str) -> str:
        """An error message about class numbers, followed by their labels."""
        labels = ", ".join(f"{c}: {label}" for c, label in enumerate(self.classes_.tolist()))
        return f"{message} (classes: {labels})" if len(self.classes_) <= 20 else message
