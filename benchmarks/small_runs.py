"""The time of commands on a lake of a few documents: CPU seconds of all processes, and wall seconds.

    python benchmarks/small_runs.py RECIPE [--repeat N]

Each round runs the recipe into a new lake, and then commands that do little. The figures are medians.
"""

import argparse
import statistics
import tempfile

from child_times import measure_command


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe")
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    times: dict[str, list[tuple[float, float]]] = {}
    for _ in range(arguments.repeat):
        with tempfile.TemporaryDirectory() as lake:
            for name, command in _commands(arguments.recipe, lake).items():
                times.setdefault(name, []).append(measure_command(command))
    print(f"{'command':<16}{'CPU s':>8}{'wall s':>8}")
    for name, values in times.items():
        cpu, wall = (statistics.median(column) for column in zip(*values, strict=True))
        print(f"{name:<16}{cpu:>8.2f}{wall:>8.2f}")


def _commands(recipe: str, lake: str) -> dict[str, list[str]]:
    run = ["run", recipe, "--lake", lake]
    return {
        "run": run,
        "nothing to do": run,
        "plan": ["plan", recipe, "--lake", lake],
        "history": ["history", f"{lake}/documents"],
        "status": ["status", lake],
        "report": ["report", lake],
        "verify": ["verify", lake],
        "--help": ["--help"],
    }


if __name__ == "__main__":
    main()
