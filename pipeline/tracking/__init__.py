"""Tracked runs: a local journal that is always written, and MLflow, which is updated from it.

Training never waits for MLflow and never fails because of it: `TrackedRun` appends to `<folder>/<run id>/events.jsonl`
and makes sure that one background process, the drainer, delivers all journals. After an outage the next drainer, or
`Delivery.run`, delivers the rest. This package does not depend on DVC or on fixed paths: the folder and the store are
arguments.
"""

from pipeline.tracking.delivery import Delivery
from pipeline.tracking.journal import Group
from pipeline.tracking.run import Part, TrackedRun
from pipeline.tracking.store import Store

__all__ = ["Delivery", "Group", "Part", "Store", "TrackedRun"]
