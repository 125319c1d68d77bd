"""Fuzz for long: `python -m tests.fuzz.long [--seconds 600] [TARGET ...]`, each target in its own process.

With atheris (coverage-guided) where it is installed, else with the mutations of the quick tests. What crashes
or takes over 20 s or 2 GB is kept in tests/fuzz/corpus/TARGET, which the quick tests read; other inputs that
reach new code are kept in .fuzz/TARGET for the next time.
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
MAX_SECONDS, MAX_MB, MAX_BYTES = 20, 2048, 16_384


def main() -> int:
    """Fuzz all targets, or those named; the exit code is 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", default=list(targets.TARGETS))
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--here", action="store_true", help="one target, in this process")
    given = parser.parse_args()
    if given.here:
        _fuzz(given.targets[0], given.seconds)
        return 0
    failed = []
    for target in given.targets:
        command = [sys.executable, "-m", "tests.fuzz.long", "--here", target]
        done = subprocess.run([*command, "--seconds", str(given.seconds)], cwd=ROOT, check=False)
        sys.stdout.write(f"{target}: {'nothing found' if done.returncode == 0 else 'FOUND'}\n")
        failed += [target] if done.returncode else []
    return 1 if failed else 0


def _fuzz(target: str, seconds: float) -> None:
    (KEPT / target).mkdir(parents=True, exist_ok=True)
    try:
        import atheris
    except ImportError:
        _mutate(target, seconds)
        return
    grown = ROOT / ".fuzz" / target
    grown.mkdir(parents=True, exist_ok=True)
    for number, content in enumerate(targets.seeds(target)):
        (grown / f"seed-{number}").write_bytes(content)
    with atheris.instrument_imports(include=["etl.sources", "etl.recipe", "yaml", "csv", "json"]):
        _reload()
    settings = {
        "max_total_time": int(seconds), "timeout": MAX_SECONDS, "rss_limit_mb": MAX_MB, "max_len": MAX_BYTES,
        "artifact_prefix": f"{KEPT / target}/", "print_final_stats": 1, "verbosity": 0,
    }  # fmt: skip
    flags = [f"-{name}={value}" for name, value in settings.items()]
    atheris.Setup([sys.argv[0], *flags, str(grown), str(KEPT / target)], _once(target))
    atheris.Fuzz()


def _once(target: str):
    def once(content: bytes) -> None:
        from tests.fuzz import targets as instrumented

        instrumented.run(target, content)

    return once


def _reload() -> None:
    """Load the code under test again, so that atheris sees its branches."""
    ours = ("etl.sources", "etl.recipe", "etl.plan", "tests.fuzz.targets", "yaml", "csv", "json")
    for name in [name for name in sys.modules if name.startswith(ours)]:
        del sys.modules[name]
    import tests.fuzz.targets  # noqa: F401


def _mutate(target: str, seconds: float) -> None:
    """Random edits of what is known; a limit of memory and time as atheris keeps it."""
    resource.setrlimit(resource.RLIMIT_AS, (4 * MAX_MB << 20, resource.RLIM_INFINITY))
    rng = random.Random(time.time_ns())
    known = targets.seeds(target) + [path.read_bytes() for path in (KEPT / target).glob("*")]
    end, count = time.monotonic() + seconds, 0
    kinds = ("put", "insert", "cut", "repeat", "flip")
    while time.monotonic() < end:
        edits = [
            (rng.choice(kinds), rng.random(), _piece(rng), rng.randint(1, 40))
            for _ in range(rng.randint(1, 6))
        ]
        content = mutate.apply(rng.choice(known), edits)
        begun = time.monotonic()
        kept = KEPT / target / f"crash-{hashlib.sha256(content).hexdigest()[:16]}"
        kept.write_bytes(content)  # before: a crash of native code leaves no time
        targets.run(target, content)
        assert time.monotonic() - begun < MAX_SECONDS, f"{kept}: took too long"
        kept.unlink()
        count += 1
    sys.stdout.write(f"{target}: {count} inputs\n")


def _piece(rng: random.Random) -> bytes:
    return (
        rng.choice(mutate.INTERESTING) if rng.random() < 0.5 else rng.randbytes(rng.randint(1, 8))
    )


if __name__ == "__main__":
    sys.exit(main())
