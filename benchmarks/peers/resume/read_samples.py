"""Write the numbered samples or read them as one rank; resume.py runs this in each loader's environment.

    python read_samples.py write READER FOLDER
    python read_samples.py read READER FOLDER RUN SEAT SAVE_AFTER [STATE ...]

A reader is a module of this folder. It has ``write(folder)``, and ``read(folder, seat, states)`` returns the
batches of a training from its beginning, or from the states that the ranks of the previous run saved.

The numbers of the samples go to RUN/RANK.ids. After SAVE_AFTER samples, the state goes to RUN/RANK.state;
then the process reads some more batches, as a training does, creates RUN/RANK.ready, and waits for its kill.
If SAVE_AFTER is 0, it reads to the end.
"""

import json
import pickle
import signal
import sys
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from seat import Seat

_BATCHES_BEFORE_KILL = 4


def read(
    reader: Any, folder: Path, run: Path, seat: Seat, save_after: int, states: list[Any]
) -> None:
    """Read to the end, or to some batches after the state."""
    batches = reader.read(folder, seat, states)
    taken = 0
    with (run / f"{seat.rank}.ids").open("w") as out:
        for ids, state in batches:
            taken += len(ids)
            print(*ids, file=out, flush=True)
            if save_after and taken >= save_after:
                (run / f"{seat.rank}.state").write_bytes(pickle.dumps(state()))
                break
        else:
            return
    list(islice(batches, _BATCHES_BEFORE_KILL))
    (run / f"{seat.rank}.ready").touch()
    signal.pause()  # all ranks are killed at once


def main() -> None:
    """Write or read."""
    task, reader, folder, *rest = sys.argv[1:]
    module = import_module(reader)
    if task == "write":
        module.write(Path(folder))
        return
    run, seat, save_after, *files = rest
    states = [pickle.loads(Path(file).read_bytes()) for file in files]  # noqa: S301 - our own
    place = Seat(**json.loads(seat))
    try:
        read(module, Path(folder), Path(run), place, int(save_after), states)
    except Exception as error:
        (Path(run) / f"{place.rank}.error").write_text(_describe(error))
        raise


def _describe(error: Exception) -> str:
    text = str(error).strip()
    if (
        "Original Traceback" in text
    ):  # a DataLoader worker's; its last line has the type and the message
        return text.splitlines()[-1]
    return " ".join(f"{type(error).__name__}: {text}".split()).rstrip(":")


if __name__ == "__main__":
    main()
