"""Errors that a user can act on: shown as one message without a traceback, with their own exit code."""

from __future__ import annotations


class UserError(RuntimeError):
    """Something outside the code went wrong: parameters, a file, the network, the disk. The message says what to do."""

    exit_code = 1
