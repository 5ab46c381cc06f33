"""One of several trainings that a single tracked run is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.tracking.run import TrackedRun


@dataclass(frozen=True)
class Part:
    """A tracked run as one of its trainings sees it: metrics go under the part's name, so that epochs do not mix.

    Args:
        run: the run, which the caller opens and finishes.
        name: of the part, such as "pixel_sd=0.1".
    """

    run: TrackedRun
    name: str

    @property
    def id(self) -> str:
        """The run's id, by which a checkpoint finds it again."""
        return self.run.id

    def resume(self, run_id: str) -> bool:
        """As `TrackedRun.resume`, before the first part has anything to log; after that the run is what it is."""
        return not self.run.started and self.run.resume(run_id)

    def log_dataset(self, name: str, label: str, digest: str) -> None:
        """As `TrackedRun.log_dataset`."""
        self.run.log_dataset(name, label, digest)

    def log_metrics(self, values: Mapping[str, float], step: int) -> None:
        """As `TrackedRun.log_metrics`, under the part's name."""
        self.run.log_metrics({f"{self.name}/{key}": value for key, value in values.items()}, step)
