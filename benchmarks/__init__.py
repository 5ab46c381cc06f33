"""Speed, against references and against the machine's limits."""

import pipeline  # noqa: F401  a Python without the packages ends here, with one message
