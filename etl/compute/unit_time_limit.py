"""Limit the time that one unit of work may take on a worker."""

import ctypes
import faulthandler
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from etl.errors import LimitError, RecipeError

TIME_LIMIT: Final = 6 * 3600.0
"""Default seconds per split: the slowest stage takes minutes for 128 MB (chosen here)."""
_LONGEST: Final = threading.TIMEOUT_MAX / 4  # what timers accept: decades

Result = TypeVar("Result")


class _Overdue(BaseException):
    """Raised inside the work; a BaseException, so ``except Exception`` in a stage does not catch it."""


def check_time_limit(seconds: float) -> None:
    """Raise RecipeError if a number of seconds is not a time limit; infinity means no limit."""
    if not seconds >= 1:  # nan is not
        what = f"the time limit is {seconds} seconds, which is too short for any split"
        raise RecipeError(what, hint="give 1 or more, or inf for no limit")


def run_with_time_limit(
    work: Callable[[], Result], seconds: float, *, may_end_process: bool
) -> Result:
    """Call ``work`` and return its result; raise LimitError if it takes longer than ``seconds``.

    With ``may_end_process`` the process is ended if the work cannot be interrupted. Use this only if
    nothing else runs in the process and it is restarted.
    """
    seconds = min(seconds, _LONGEST)
    thread = ctypes.c_ulong(threading.get_ident())
    timer = threading.Timer(seconds, _raise_in, (thread, ctypes.py_object(_Overdue)))
    timer.daemon = True
    if may_end_process:
        faulthandler.dump_traceback_later(2 * seconds, exit=True)
    try:
        timer.start()
        try:
            return work()
        finally:
            timer.cancel()
            timer.join()  # if the timer fires now, its exception is raised here
    except _Overdue as error:
        raise LimitError(
            f"it took longer than {seconds:g} s", hint="if this is expected, increase --time-limit"
        ) from error
    finally:
        if may_end_process:
            faulthandler.cancel_dump_traceback_later()


def _raise_in(thread: ctypes.c_ulong, error: "ctypes.py_object[type[BaseException]]") -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, error)
