"""Errors that a user can fix: shown as one message without a traceback, with their own exit code."""

from __future__ import annotations


class UserError(RuntimeError):
    """An error outside the code, in parameters, files, the network or the disk. The message says what to do."""

    exit_code = 1
