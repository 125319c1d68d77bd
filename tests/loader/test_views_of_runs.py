"""Views of lakes that `etl run` and `etl shuffle` have written."""

import pytest
from distributed import Client
from upath import UPath

from etl.errors import LoaderError
from etl.job.run import run
from etl.job.shuffle import ShuffleSettings, shuffle
from etl.loader import Format, Prefix, Split, TokenDataset, View
from etl.loader.replay import replay
from etl.stages import DedupMinhash, Tokenize, Where
from tests.helpers.lake_rows import rows
from tests.helpers.near_duplicates import make, planted, write

WORDS = {"original": 120, "longer": 122, "far": 120, "equal": 120, "near": 120}


def read(table: str, view: View) -> list[tuple[str, float]]:
    """Return the ids and the words of all documents of an epoch, which `locate` must confirm."""
    dataset = TokenDataset(table, seq_len=64, format=Format(pad_id=0), view=view)
    found, sample = [], 0
    for batch in dataset.batches(4, drop_last=False):
        for name, words in zip(batch["id"], batch["num_words"], strict=True):
            assert [span.id for span in dataset.locate(sample)] == [name]
            found.append((name, words))
            sample += 1
    return sorted(found)


@pytest.mark.slow
def test_views_of_the_tables_of_a_lake(
    place: UPath, client: Client, tiny_tokenizer: UPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))
    records = planted()
    write(place / "in", records[:40], 3)
    stages = (Where(keep="num_words > 5"), DedupMinhash(), Tokenize(tokenizer=str(tiny_tokenizer)))
    recipe = make(place / "lake", place / "in", *stages)
    columns = ["id", "num_words"]
    sides: list[set[str]] = []
    for first in (0, 40):  # the second run adds files and a part of the shuffled table
        if first:
            write(place / "in", records[first:], 2, first=9)
        assert run(recipe, cluster=client).ok
        shuffle(recipe.lake, settings=ShuffleSettings(bucket_bytes=4096), cluster=client)
        kept = {row["id"] for row in rows(recipe.lake, "tokens")}
        for table in (f"{recipe.lake}/tokens", f"{recipe.lake}/tokens_shuffled"):
            everything = read(table, View(columns=columns))
            assert {name for name, _ in everything} == kept
            assert all(words == WORDS[name.partition("-")[2]] for name, words in everything)
            longer = read(table, View(columns=columns, where="num_words > 121"))
            assert longer == [pair for pair in everything if pair[1] == 122]
            train, validation = (
                {
                    name
                    for name, _ in read(
                        table, View(columns=columns, split=Split(side=side, share=0.3))
                    )
                }
                for side in ("train", "validation")
            )
            assert train | validation == kept
            assert not train & validation
            assert all(train & kept >= before & kept for before in sides)
            sides.append(train)
            check_prefixes(table, str(tiny_tokenizer))


def check_prefixes(table: str, tokenizer: str) -> None:
    """Check the text of some rows with prefixes, and that another tokenizer is refused."""
    view = View(prefix=Prefix(column="id", template="{}: ", tokenizer=tokenizer))
    dataset = TokenDataset(table, seq_len=64, format=Format(pad_id=0), view=view)
    for row in replay(dataset, batch_size=4, tokenizer=tokenizer).rows:
        (passage,) = row.passages
        assert (passage.text or "").startswith(f"{passage.span.id}: ")
    other = Prefix(column="id", tokenizer="pipelines/sample/tokenizer.json")
    with pytest.raises(LoaderError, match=r"not the one of the table(.|\n)*hint: use tokenizer"):
        TokenDataset(table, seq_len=64, view=View(prefix=other))
