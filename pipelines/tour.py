"""A walk through a lake that `make demo` has filled: counts, history, two traces, three batches.

python -m pipelines.tour LAKE
"""

import sys
from collections.abc import Iterable
from importlib import resources

from tokenizers import Tokenizer

import etl
from cli import render
from etl.loader import TokenDataset


def title(text: str) -> None:
    """A heading on its own line."""
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}\n{'-' * len(text)}")


def show(lines: Iterable[str]) -> None:
    """Lines, as the command line prints them."""
    print("\n".join(lines))


def main(lake: str) -> None:
    """Show what stands in the lake, through the same functions that a user calls."""
    title("What became of each document")
    show(render.lake_report(etl.report(lake)))

    title("The versions of the table `tokens`")
    show(render.versions(etl.history(f"{lake}/tokens")))

    documents = etl.read_table(lake, "documents")[["id", "source", "row", "verdict", "reason"]]
    for verdict in ("kept", "rejected"):
        title(f"One {verdict} document, back to its source")
        found = documents[documents.verdict == verdict].head(1, npartitions=-1).iloc[0]
        show(render.traces(etl.trace(lake, source=found.source, row=int(found.row))))

    title("Three packed training batches")
    tokenizer = Tokenizer.from_file(str(resources.files("pipelines") / "sample/tokenizer.json"))
    dataset = TokenDataset(lake, seq_len=512, seed=0)
    for step, batch in zip(range(3), dataset.batches(8), strict=False):
        ids, labels = batch["input_ids"], batch["labels"]
        text = " ".join(tokenizer.decode(ids[0, :24].tolist()).split())
        print(
            f"step {step}: input_ids {tuple(ids.shape)}, labels {tuple(labels.shape)}: {text} ..."
        )


if __name__ == "__main__":
    main(sys.argv[1])
