"""Keep workers from running the driver's script again.

A process that Python's multiprocessing starts first runs the script of its parent, so that a script without
``if __name__ == "__main__":`` would call ``etl.run`` in each worker. Workers need nothing of the script: Dask
sends its functions by value. The fork server imports this module, and is then taken for a process that has
run the script, as are its forks.
"""

import os
import sys
from importlib.machinery import ModuleSpec
from multiprocessing import process
from pathlib import Path
from typing import Any, Final

_FILE: Final = "_TOKENLAKE_DRIVER_FILE"
_MODULE: Final = "_TOKENLAKE_DRIVER_MODULE"
_PROCESS: Any = process  # the type stubs lack ORIGINAL_DIR, to which multiprocessing joins the file


def describe_script() -> dict[str, str]:
    """Return the environment in which the fork server imports this module: the script of this process."""
    main = sys.modules["__main__"]
    if main.__spec__ is not None:  # python -m
        return {_MODULE: main.__spec__.name}
    file = getattr(main, "__file__", None)
    if file is None:
        return {}
    return {_FILE: os.path.normpath(Path(_PROCESS.ORIGINAL_DIR or "", file))}


def _take_over() -> None:
    """Give ``__main__`` the file or the name by which multiprocessing recognizes a script."""
    main: Any = sys.modules["__main__"]
    if (file := os.environ.pop(_FILE, None)) is not None:
        main.__file__ = file
    if (name := os.environ.pop(_MODULE, None)) is not None:
        main.__spec__ = ModuleSpec(name, None)


_take_over()
