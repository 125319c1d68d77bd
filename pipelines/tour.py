"""A tour of the lake that `make demo` creates: counts, history, two traces, three batches.

python -m etl.pipelines.tour LAKE
"""

import sys
from collections.abc import Iterable
from importlib import resources

from tokenizers import Tokenizer

import etl
from etl.cli import render
from etl.loader import TokenDataset


def title(text: str) -> None:
    """Print a heading."""
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}\n{'-' * len(text)}")


def show(lines: Iterable[str]) -> None:
    """Print lines as the command line does."""
    print("\n".join(lines))


def main(lake: str) -> None:
    """Show the contents of the lake with the public functions of `etl`."""
    title("Documents by verdict and reason")
    show(render.lake_report(etl.report(lake)))

    title("Versions of the table `tokens`")
    show(render.versions(etl.history(f"{lake}/tokens")))

    documents = etl.read_table(lake, "documents")[["id", "source", "row", "verdict", "reason"]]
    for verdict in ("kept", "rejected"):
        title(f"A {verdict} document, traced to its source")
        document = documents[documents.verdict == verdict].head(1, npartitions=-1).iloc[0]
        show(render.traces(etl.trace(lake, source=document.source, row=int(document.row))))

    title("Three packed training batches")
    tokenizer = Tokenizer.from_file(str(resources.files("etl.pipelines") / "sample/tokenizer.json"))
    dataset = TokenDataset(lake, seq_len=512, seed=0)
    for step, batch in zip(range(3), dataset.batches(8), strict=False):
        ids, labels = batch["input_ids"], batch["labels"]
        text = " ".join(tokenizer.decode(ids[0, :24].tolist()).split())
        print(
            f"step {step}: input_ids {tuple(ids.shape)}, labels {tuple(labels.shape)}: {text} ..."
        )


if __name__ == "__main__":
    main(sys.argv[1])
