"""Tracked runs: a local journal that is always written, and MLflow, which is brought up to date from it.

Training never waits for MLflow and never fails because of it: `TrackedRun` appends to `<folder>/<run id>/events.jsonl`
and sees to it that one process in the background, the drainer, delivers all journals; what an outage delayed is
delivered by the next drainer or by `Delivery.run`. This package knows neither DVC nor where files lie: the folder and
the store are passed in.
"""

from pipeline.tracking.delivery import Delivery
from pipeline.tracking.journal import Group
from pipeline.tracking.run import Part, TrackedRun
from pipeline.tracking.store import Store

__all__ = ["Delivery", "Group", "Part", "Store", "TrackedRun"]
