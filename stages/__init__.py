"""One thin file per DVC stage."""

import pipeline  # noqa: F401  if packages are missing, Python stops here with one message
