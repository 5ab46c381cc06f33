"""Errors that a user can fix: shown as one message without a traceback, with their own exit code."""

import sys


class UserError(RuntimeError):
    """An error outside the code, in parameters, files, the network or the disk. The message says what to do."""

    exit_code = 1


class ParamsError(UserError):
    """A parameter is unknown, missing or out of range. The message names each field and its allowed values."""

    exit_code = 2


def show_error(error: UserError | OSError) -> int:
    """Print an error as one message, and return its exit code. The message names the file of an `OSError`."""
    message, code = str(error), 1
    if isinstance(error, UserError):
        code = error.exit_code
    elif error.filename and error.strerror:
        message = f"{error.filename2 or error.filename}: {error.strerror}"  # of two files, the second is the target
    print(f"error: {message}", file=sys.stderr)
    return code
