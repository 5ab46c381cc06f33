"""The programs of the DVC stages. All studies share one program, `study.py`."""

import pipeline  # noqa: F401  if packages are missing, this import exits with one message
