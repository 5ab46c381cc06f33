"""Tracked runs: a local journal that is always written, and MLflow, fed from it whenever it answers.

Training never waits for MLflow and never fails because of it: `TrackedRun` appends to `<folder>/<run id>/events.jsonl`,
a process in the background replays that file, and what an outage missed is replayed later by `sync`. This package
knows neither DVC nor where files lie: the folder and the store are passed in.
"""

from pipeline.tracking.journal import Group
from pipeline.tracking.part import Part
from pipeline.tracking.run import TrackedRun
from pipeline.tracking.store import Store
from pipeline.tracking.sync import Synced, sync

__all__ = ["Group", "Part", "Store", "Synced", "TrackedRun", "sync"]
