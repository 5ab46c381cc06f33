"""Tracked runs: a local journal that is always written, and MLflow, which is updated from it.

Training never waits for MLflow and never fails because of it: `TrackedRun` appends to `<folder>/<run id>/events.jsonl`,
and a process of its own delivers the journals of the folder. What MLflow misses during an outage, the next such process
delivers, or `Delivery.run`. This package does not depend on DVC or on fixed paths: folder and store are arguments.
"""

from pipeline.tracking.run import Group, Part, TrackedRun
from pipeline.tracking.store import Store

__all__ = ["Group", "Part", "Store", "TrackedRun"]
