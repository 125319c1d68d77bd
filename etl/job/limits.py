"""A time limit for units of work, which interrupts the work and keeps the worker running.

Python code is interrupted between two bytecode instructions. Native code that does not return, or that holds
the GIL (such as a regular expression with catastrophic backtracking), cannot be interrupted: after twice the
limit a C thread ends the process with a traceback on stderr, and Dask's nanny starts another.
"""

import ctypes
import faulthandler
import threading
from collections.abc import Callable

from etl.errors import LimitError


class _Overdue(BaseException):
    """Raised inside the work; a BaseException, so ``except Exception`` in a stage does not catch it."""


def limited(work: Callable[[], str], seconds: float, *, may_end_process: bool) -> str:
    """Call ``work`` and return its result; raise LimitError if it takes longer than ``seconds``.

    With ``may_end_process`` the process is ended if the work cannot be interrupted. Use this only if
    nothing else runs in the process and it is restarted.
    """
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
