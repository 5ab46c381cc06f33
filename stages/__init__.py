"""One thin file per DVC stage."""

import pipeline  # noqa: F401  a Python without the packages ends here, with one message
