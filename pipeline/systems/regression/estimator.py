"""Capsule regression as a scikit-learn classifier (Saul 2021, document 002)."""

from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Self, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from pipeline.systems.regression.model.architectures import build_architecture, class_scores, coupled_probabilities
from pipeline.systems.regression.model.expectation_maximisation import CHUNK, Problems
from pipeline.systems.regression.model.fits import fit
from pipeline.systems.regression.settings import Decision, ScheduleParams


class CapsuleRegression(ClassifierMixin, BaseEstimator):
    """Classification by capsules whose vectors compete in length, fitted by expectation maximisation.

    Each class has a capsule: a matrix that maps an input to a vector of `capsule_size` numbers. Gaussian noise of sd 1
    is added to each vector. The probability of a class is the expected value of its vector's squared length divided by
    the sum of all squared lengths. A capsule of size 1 is one weight vector, as in logistic regression. A larger
    capsule spans a subspace in which its class varies.

    Args:
        capsule_size: dimensions of a capsule.
        decision: "multiclass": one model of all classes. "one-vs-all": a model for each class against all others.
            "all-vs-all": a model for each pair of classes, which votes for one of the two.
        fit_intercept: whether to append a constant 1 to every input. Without it, x and -x have the same probabilities,
            because these depend only on the lengths of vectors that are linear in the input.
        ridge: penalty on squared weights, in units of the features' mean square times the number of examples.
        momentum: share of the previous change of the weights that is added in each iteration (gamma of equation 27).
        thresholds: threshold nu of each round of training (equation 26, see `ScheduleParams`).
        patience: for each round, the number of iterations without a new lowest validation error after which it ends.
        max_iter: maximum number of iterations of a model, in all rounds together.
        validation_fraction: share of each class's examples that are held out. Their errors decide when a round ends
            and which weights are kept. If no example is held out, the errors of the training examples decide.
        device: "cpu", "cuda" or another torch device.
        random_state: seed or generator for the choice of held-out examples.

    Attributes:
        classes_: the class labels, sorted.
        capsules_: weights `[problems, capsules, size, features]`. The last axis is features + 1 with `fit_intercept`.
        n_iter_: largest number of iterations of any problem. A problem is one model (see `decision`).
        n_features_in_: number of features.
        history_: data frame with one row per iteration and problem (see `fits.fit`).
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "capsule_size": [Interval(Integral, 1, None, closed="left")],
        "decision": [StrOptions(set(get_args(Decision)))],
        "fit_intercept": ["boolean"],
        "ridge": [Interval(Real, 0, None, closed="left")],
        "validation_fraction": [Interval(Real, 0, 0.9, closed="both")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        capsule_size: int = 2,
        *,
        decision: Decision = "multiclass",
        fit_intercept: bool = True,
        ridge: float = 0.0,
        momentum: float = 0.9,
        thresholds: Sequence[float] = (0.8, 0.6, 0.4, 0.2, 0.0),
        patience: Sequence[int] = (128, 64, 32, 16, 8),
        max_iter: int = 5000,
        validation_fraction: float = 0.1,
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
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to inputs `X [n, features]` and their labels `y [n]`. Raises `ValueError` if there is only one class, the
        examples of a capsule span fewer dimensions than its size, all inputs are 0, or a parameter is out of range.
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
        self.classes_, numbers = np.unique(y, return_inverse=True)
        labels = self.classes_.tolist()
        if len(labels) < 2:
            raise ValueError(f"y holds one class only ({labels[0]}): classification needs two or more")
        held = held_out(numbers, self.validation_fraction, check_random_state(self.random_state))
        inputs, classes = self._inputs(X), torch.from_numpy(numbers).to(self.device)
        self._architecture = build_architecture(self.decision, int(self.capsule_size), len(labels))
        try:
            problems = Problems(inputs[~held], classes[~held], self._architecture, ridge=self.ridge)
            W = problems.subspace_start()
        except ValueError as error:
            named = ", ".join(f"{number}: {label}" for number, label in enumerate(labels[:20]))
            raise ValueError(f"{error} (classes: {named})") from None
        validation = problems.sort(inputs[held], classes[held]) if held.any() else problems.examples
        state, self.history_ = fit(problems, W, validation, schedule)
        self.capsules_ = problems.own_coordinates(state.best).cpu().numpy()
        self.n_iter_ = int(state.iterations.max())
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Labels `[n]` of inputs `X [n, features]` by the document's rule: the most probable class or, in all-vs-all,
        the class with the most votes. This class need not be the most probable one in `predict_proba`.
        """
        scores = self._for_rows(class_scores, X)  # first, because it raises if the estimator is not fitted
        return self.classes_[scores.argmax(axis=1)]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of the classes, `[n, classes]`, in the order of `classes_`. Rows sum to one.

        With "multiclass", or with two classes, they are the model's exact probabilities (equation 16). With
        "one-vs-all", they are each class's probability against all others, normalised. With "all-vs-all", they are
        combined from the probabilities of all pairs by the second method of Wu, Lin and Weng (2004), as in LIBSVM.

        The default schedule aims at few errors, and makes the probability of the predicted class too low. Calibrate
        probabilities before use, for example with `sklearn.calibration.CalibratedClassifierCV`.
        """
        return self._for_rows(coupled_probabilities, X)

    def _inputs(self, X: NDArray[np.float64]) -> Tensor:
        whole = np.column_stack([X, np.ones(len(X))]) if self.fit_intercept else X
        return torch.from_numpy(np.ascontiguousarray(whole)).to(self.device)

    def _for_rows(self, function: Callable[..., Tensor], X: Any) -> NDArray[np.float64]:
        """`function(architecture, W, inputs)` for all inputs `X`, computed for `CHUNK` rows at a time."""
        check_is_fitted(self)
        inputs = self._inputs(validate_data(self, X, dtype=np.float64, reset=False))
        W = torch.from_numpy(self.capsules_).to(self.device)
        return torch.cat([function(self._architecture, W, rows) for rows in inputs.split(CHUNK)]).cpu().numpy()


def held_out(classes: NDArray[np.int64], fraction: float, random: np.random.RandomState) -> NDArray[np.bool_]:
    """Mask `[n]` of validation examples: about a share `fraction` of each class, but never all examples of a class."""
    held = np.zeros(len(classes), bool)
    for c in np.unique(classes):
        rows = random.permutation(np.flatnonzero(classes == c))
        held[rows[: min(round(fraction * len(rows)), len(rows) - 1)]] = True
    return held
