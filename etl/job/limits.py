"""A limit of time for a unit of work: what takes longer ends with a reason, and the worker goes on.

Python is interrupted between two of its instructions. Native code that does not come back cannot be, nor can
it that keeps Python's lock (a regular expression gone wild): after twice the limit its process is ended from
a thread of C, with a traceback on stderr, and Dask's nanny starts another.
"""

import ctypes
import faulthandler
import threading
from collections.abc import Callable

from etl.errors import LimitError


class _Overdue(BaseException):
    """Raised inside the work; no ``except Exception`` of a stage takes it for a failure of its own."""


def limited(work: Callable[[], str], seconds: float, *, may_end_process: bool) -> str:
    """What ``work`` returns; raises LimitError if that takes longer.

    With ``may_end_process`` the process ends if the work cannot be interrupted: where another takes its
    place, and nothing else runs in it.
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
            timer.join()  # one that goes off just now does so in here
    except _Overdue as error:
        raise LimitError(
            f"it took longer than {seconds:g} s", hint="raise --time-limit if that is no surprise"
        ) from error
    finally:
        if may_end_process:
            faulthandler.cancel_dump_traceback_later()


def _raise_in(thread: ctypes.c_ulong, error: "ctypes.py_object[type[BaseException]]") -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, error)
