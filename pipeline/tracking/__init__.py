"""Tracked runs: each executed item of a stage writes a local journal of events, from which MLflow is updated.

Training never waits for MLflow and never fails because of it. `TrackedRun` appends to `<folder>/<run id>/events.jsonl`,
and another process (`delivery.py`) delivers all journals in `<folder>` to MLflow, also after an outage.
"""

from pipeline.tracking.run import Store, TrackedRun

__all__ = ["Store", "TrackedRun"]
