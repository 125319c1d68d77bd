"""Print a tour of the lake that `make demo` writes: counts, history, two traces, three batches.

python -m etl.pipelines.tour LAKE
"""

import sys
from collections.abc import Iterable
from importlib import resources

from tokenizers import Tokenizer

import etl
from etl.cli.commands import history, report, trace
from etl.loader import TokenDataset


def print_title(text: str) -> None:
    """Print a heading."""
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}\n{'-' * len(text)}")


def print_lines(lines: Iterable[str]) -> None:
    """Print lines."""
    print("\n".join(lines))


def main(lake: str) -> None:
    """Print the tour of a lake, using only public functions and the output of the commands."""
    print_title("Documents by outcome")
    print_lines(report.lines(etl.report(lake)))

    print_title("Versions of the table `tokens`")
    print_lines(history.lines(etl.history(f"{lake}/tokens")))

    documents = etl.read_table(lake, "documents")[["id", "source", "row", "verdict", "reason"]]
    for verdict in ("kept", "rejected"):
        print_title(f"A {verdict} document, traced to its source")
        document = documents[documents.verdict == verdict].head(1, npartitions=-1).iloc[0]
        print_lines(trace.lines(etl.trace(lake, source=document.source, row=int(document.row))))

    print_title("Three packed training batches")
    tokenizer = Tokenizer.from_file(str(resources.files("etl.pipelines") / "sample/tokenizer.json"))
    dataset = TokenDataset(lake, seq_len=512, seed=0)
    for step, batch in zip(range(3), dataset.batches(8), strict=False):
        ids, labels = batch["input_ids"], batch["labels"]
        text = " ".join(tokenizer.decode(ids[0, :24].tolist()).split())
        print(
            f"step {step}: input_ids {tuple(ids.shape)}, labels {tuple(labels.shape)}: {text} ..."
        )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m etl.pipelines.tour LAKE")
    main(sys.argv[1])
