"""The command line. This module runs it and turns failures into exit codes; the commands are in its neighbours.

Exit codes: 0 done, 1 failed (one line on stderr says why), 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from querator.errors import QueratorError

__all__ = ["main"]

FAILED = 1
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    from querator.cli.root import root

    try:
        outcome = root.main(args=arguments, prog_name="querator", standalone_mode=False)
        sys.stdout.flush()
    except click.UsageError as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (click.ClickException, QueratorError, OSError, ValueError) as error:
        click.secho(f"error: {_one_line(error)}", err=True, fg="red")
        return FAILED
    return outcome if isinstance(outcome, int) else 0


def _one_line(error: Exception) -> str:
    return " ".join("; ".join((str(error), *getattr(error, "__notes__", ()))).split())
