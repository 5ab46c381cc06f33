"""Benchmarks: how fast the code is, compared with other code and with the machine's limits."""

import pipeline  # noqa: F401  exits with one message if packages are missing
