"""The errors a user sees: each is one clear line and carries the exit code of the process."""


class RooflineError(Exception):
    """Work that failed. The message is one line and names what was expected."""

    exit_code = 1


class InputError(RooflineError):
    """Bad usage or bad input: an option, a size, a file (exit code 2)."""

    exit_code = 2


class MissingError(RooflineError):
    """Something the command needs is not here: a GPU, torch, a profiler (exit code 3)."""

    exit_code = 3
