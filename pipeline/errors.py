"""Errors that a user can fix. They are shown as one message without a traceback, and set the exit code."""

import sys


class UserError(RuntimeError):
    """An error whose cause is in parameters, files, the network or the disk. The message says what to do."""

    exit_code = 1


class ParamsError(UserError):
    """`params.yaml` is missing or wrong, or lacks what was asked for. The message names what is wrong."""

    exit_code = 2


def show_error(error: UserError | OSError) -> int:
    """Print an error as one message, and return its exit code. The message names the file of an `OSError`."""
    message, code = str(error), 1
    if isinstance(error, UserError):
        code = error.exit_code
    elif error.filename and error.strerror:
        message = f"{error.filename2 or error.filename}: {error.strerror}"  # in a rename, filename2 is the target
    print(f"error: {message}", file=sys.stderr)
    return code
