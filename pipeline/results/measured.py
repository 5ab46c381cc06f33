"""A number measured on several replicas, and how two such numbers compare."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pandas as pd

SIGNIFICANT_SES = 2.0
"""A difference between two numbers is clear if it is more than this many standard errors of the difference."""


@dataclass(frozen=True)
class Measured:
    """A number measured on `n` replicas: its mean and sample standard deviation over the replicas (0 if n is 1).

    Attributes:
        standard_error: whether `sd` is the standard error of the mean, in place of the standard deviation.
    """

    mean: float
    sd: float
    n: int
    standard_error: bool = False

    @classmethod
    def of(cls, replicas: pd.Series[float]) -> Measured:
        """The mean, sd and n of a series that has one number per replica."""
        return cls(float(replicas.mean()), float(replicas.std()) if len(replicas) > 1 else 0.0, len(replicas))

    def scaled(self, factor: float) -> Measured:
        """The same measurement in another unit: 100 turns fractions into percent."""
        return replace(self, mean=self.mean * factor, sd=self.sd * abs(factor))

    def as_error(self) -> Measured:
        """The error in percent. This measurement must be an accuracy in [0, 1]."""
        return replace(self, mean=100 * (1 - self.mean), sd=100 * self.sd)

    def minus(self, other: Measured) -> Measured:
        """The difference of two means. Its sd assumes independent measurements, and is 0 if unknown (see `_with`).

        Numbers of the same replicas may correlate. If positively, the sd is too large; if negatively, it is too small.
        """
        return self._with(other, self.mean - other.mean, math.hypot(self.sd, other.sd))

    def over(self, other: Measured) -> Measured:
        """This number divided by `other`; neither may be negative. The sd is a first-order approximation for
        independent measurements (see `_with`). If `other` is 0, the ratio is infinite, or 1 if both are 0; its sd is 0.
        """
        if other.mean == 0:
            return self._with(other, math.inf if self.mean else 1.0, 0.0)
        ratio = self.mean / other.mean
        return self._with(other, ratio, math.hypot(self.sd, ratio * other.sd) / other.mean)

    def _with(self, other: Measured, mean: float, sd: float) -> Measured:
        """A copy with `mean`, `sd` and the smaller n. If n is 1, `sd` is 0 (unknown), unless it is a standard error."""
        n = min(self.n, other.n)
        return replace(self, mean=mean, sd=sd if n > 1 or self.standard_error else 0.0, n=n)

    @property
    def se(self) -> float:
        """The standard error of the mean. If n is 1, it is 0 (unknown), unless `sd` is a standard error."""
        return self.sd if self.standard_error else self.sd / math.sqrt(self.n)

    def clearly_above(self, other: Measured) -> bool:
        """Whether this mean exceeds the other by more than `SIGNIFICANT_SES` standard errors of the difference."""
        return self.mean - other.mean > SIGNIFICANT_SES * math.hypot(self.se, other.se)

    def variance_of_share(self, images: float) -> float:
        """The squared standard error if `mean` is a share (0 to 1) of `images` images: binomial variance + `se`**2."""
        return self.mean * (1 - self.mean) / images + self.se**2
