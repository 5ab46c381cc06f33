"""The drainer's process: `python -m pipeline.tracking FOLDER [ARTIFACTS]`, with the store in `MLFLOW_TRACKING_URI`.

Started by `drainer.DrainerStarter`. The address is not an argument because it may hold a password.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from pipeline.tracking.drainer import Drainer
from pipeline.tracking.store import Store

if __name__ == "__main__":
    os.nice(5)  # training has priority
    folder, *artifacts = map(Path, sys.argv[1:])
    drainer = Drainer(folder, Store(os.environ["MLFLOW_TRACKING_URI"], *artifacts))
    threading.Thread(target=drainer.watch, daemon=True).start()
    drainer.run()
    os._exit(0)  # everything is delivered: skip MLflow's shutdown, which takes half a second
