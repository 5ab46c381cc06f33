"""Tracked runs. Each run writes a local journal, and MLflow is updated from the journals.

Training never waits for MLflow and never fails because of it: `TrackedRun` appends to `<folder>/<run id>/events.jsonl`,
and another process (`delivery.py`) delivers the journals of the folder, including events that an outage delayed.
"""

from pipeline.tracking.run import Store, TrackedRun

__all__ = ["Store", "TrackedRun"]
