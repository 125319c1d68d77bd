"""Run a function in several processes that form a process group (gloo), as training ranks do."""

import multiprocessing
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed


def run_ranks(
    function: Callable[..., Any], *args: Any, folder: Path, world_size: int = 2
) -> list[Any]:
    """Return what the function returns on each rank; it must be picklable.

    The processes are forked, so that they need not import everything again.
    """
    context = multiprocessing.get_context("fork")
    processes = []
    for rank in range(world_size):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(
            target=_run, args=(sender, function, args, folder, rank, world_size)
        )
        process.start()
        sender.close()
        processes.append((process, receiver))
    results = []
    for process, receiver in processes:
        try:
            results.append(receiver.recv())
        except EOFError:
            results.append(RuntimeError("the process died"))
        process.join()
    failures = [str(result) for result in results if isinstance(result, Exception)]
    assert not failures, "\n".join(failures)
    return results


def _run(
    sender: Any, function: Callable[..., Any], args: Any, folder: Path, rank: int, world_size: int
) -> None:
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world_size}
    os.environ.update({name: str(value) for name, value in names.items()})
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29400", LOCAL_WORLD_SIZE="1")
    torch.set_num_threads(1)
    try:
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world_size
        )
        sender.send(function(*args))
        torch.distributed.destroy_process_group()
    except BaseException:  # noqa: BLE001 - the test shows it
        sender.send(RuntimeError(traceback.format_exc()))
