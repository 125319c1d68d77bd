"""Long fuzzing: `python -m tests.fuzz.long [--seconds 600] [TARGET ...]`, one process per target.

Uses atheris (coverage-guided) if it is installed, else the mutations of the quick tests. Inputs that crash or
need more than 20 s or 1.5 GB are saved in tests/fuzz/corpus/TARGET, which the quick tests read. Other
inputs that reach new code are saved in .fuzz/TARGET for the next run.

The limit without atheris is one of data (RLIMIT_DATA), which counts the memory that a process can write to.
Address space is not limited: numba and Arrow reserve more of it than they use. Resident memory is checked.
"""

import argparse
import hashlib
import random
import resource
import subprocess
import sys
import time
from pathlib import Path

from tests.fuzz import mutate, targets

ROOT = Path(__file__).parent.parent.parent
KEPT = Path(__file__).parent / "corpus"
MAX_SECONDS, MAX_MB, MAX_BYTES = 20, 1536, 16_384

_STRUCTURED = 0.5  # of the inputs have a number or a structure changed, besides other edits


def main() -> int:
    """Fuzz all targets or the named ones; return 1 if there was a finding."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", default=list(targets.TARGETS))
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--in-process", action="store_true", help="fuzz one target in this process")
    arguments = parser.parse_args()
    if arguments.in_process:
        _fuzz(arguments.targets[0], arguments.seconds)
        return 0
    failed = []
    for target in arguments.targets:
        command = [sys.executable, "-m", "tests.fuzz.long", "--in-process", target]
        result = subprocess.run(
            [*command, "--seconds", str(arguments.seconds)], cwd=ROOT, check=False
        )
        sys.stdout.write(f"{target}: {'no findings' if result.returncode == 0 else 'FAILED'}\n")
        failed += [target] if result.returncode else []
    return 1 if failed else 0


def _fuzz(target: str, seconds: float) -> None:
    (KEPT / target).mkdir(parents=True, exist_ok=True)
    try:
        import atheris
    except ImportError:
        _mutate(target, seconds)
        return
    inputs = ROOT / ".fuzz" / target
    inputs.mkdir(parents=True, exist_ok=True)
    for number, content in enumerate(targets.seeds(target)):
        (inputs / f"seed-{number}").write_bytes(content)
    with atheris.instrument_imports(
        include=["etl.sources", "etl.recipe.recipe", "yaml", "csv", "json"]
    ):
        _reload()
    settings = {
        "max_total_time": int(seconds), "timeout": MAX_SECONDS, "rss_limit_mb": MAX_MB, "max_len": MAX_BYTES,
        "artifact_prefix": f"{KEPT / target}/", "print_final_stats": 1, "verbosity": 0,
    }  # fmt: skip
    flags = [f"-{name}={value}" for name, value in settings.items()]
    atheris.Setup([sys.argv[0], *flags, str(inputs), str(KEPT / target)], _runner(target))
    atheris.Fuzz()


def _runner(target: str):
    def run(content: bytes) -> None:
        from tests.fuzz import targets as instrumented

        instrumented.run(target, content)

    return run


def _reload() -> None:
    """Import the code under test again, so that atheris instruments it."""
    modules = (
        "etl.sources",
        "etl.recipe.recipe",
        "etl.job.plan",
        "tests.fuzz.targets",
        "yaml",
        "csv",
        "json",
    )
    for name in [name for name in sys.modules if name.startswith(modules)]:
        del sys.modules[name]
    import tests.fuzz.targets  # noqa: F401


def _mutate(target: str, seconds: float) -> None:
    """Run random edits of the known inputs, with limits of memory and time like atheris's."""
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_MB << 20, resource.RLIM_INFINITY))
    rng = random.Random(time.time_ns())
    known = targets.seeds(target) + [path.read_bytes() for path in (KEPT / target).glob("*")]
    end, count, peak_mb = time.monotonic() + seconds, 0, 0
    kinds = ("put", "insert", "cut", "repeat", "flip")
    while time.monotonic() < end:
        edits = [
            (rng.choice(kinds), rng.random(), _piece(rng), rng.randint(1, 40))
            for _ in range(rng.randint(1, 6))
        ]
        content = rng.choice(known)
        if rng.random() < _STRUCTURED:
            content = mutate.edit_structure(content, target, rng)
        content = mutate.apply(content, edits[: rng.randint(0, len(edits))])
        started = time.monotonic()
        saved = KEPT / target / f"crash-{hashlib.sha256(content).hexdigest()[:16]}"
        saved.write_bytes(content)  # before the run, because native code may crash the process
        targets.run(target, content)
        assert time.monotonic() - started < MAX_SECONDS, f"{saved}: took too long"
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        assert peak_mb < MAX_MB, f"{saved}: took {peak_mb} MB"
        saved.unlink()
        count += 1
    sys.stdout.write(f"{target}: {count} inputs, at most {peak_mb} MB\n")


def _piece(rng: random.Random) -> bytes:
    return (
        rng.choice(mutate.INTERESTING) if rng.random() < 0.5 else rng.randbytes(rng.randint(1, 8))
    )


if __name__ == "__main__":
    sys.exit(main())
