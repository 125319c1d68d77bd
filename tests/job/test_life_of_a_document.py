"""The page that follows a document names the functions that handle it, in the order of their first calls."""

import json
import random
import re
import sys
import threading
from pathlib import Path
from types import FrameType

from upath import UPath

import etl
from etl.compute.local_cluster import start_in_process
from etl.loader import TokenDataset

ROOT = Path(__file__).parent.parent.parent
WORDS = "the heron waded in shallow water and no one could say for how long it had been there with".split()
PAGE = ROOT / "docs" / "explanation" / "life-of-a-document.md"

Call = tuple[str, str]


class FirstCalls:
    """The functions of the package in the order of their first calls, in all threads that start later."""

    def __init__(self) -> None:
        self.calls: dict[Call, None] = {}
        self._files: dict[str, str | None] = {}

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            code = frame.f_code
            if (file := self._find(code.co_filename)) is not None:
                self.calls.setdefault((file, code.co_qualname))

    def _find(self, name: str) -> str | None:
        if name not in self._files:
            path = Path(name)
            is_ours = path.is_relative_to(ROOT / "etl")
            self._files[name] = str(path.relative_to(ROOT)) if is_ours else None
        return self._files[name]


def stations() -> list[Call]:
    rows = re.findall(
        r"^\|.*\| `(etl/\S+\.py)` \| `(\S+)` \|$", PAGE.read_text("utf-8"), re.MULTILINE
    )
    return [(file, function) for file, function in rows]


def live(folder: UPath, name: str, tokenizer: Path) -> None:
    """Run the recipe of the page, and read a batch."""
    recipe = etl.Recipe(
        name="life",
        source={"path": str(folder / "input" / "*.jsonl")},
        lake=str(folder / name),
        stages=["gopher_quality", "dedup_exact", {"tokenize": str(tokenizer)}],
    )
    with start_in_process() as client:
        assert etl.run(recipe, cluster=client).tokens
    next(iter(TokenDataset(str(folder / name), seq_len=32).batches(4)))


def test_stations_are_in_the_order_of_calls(tmp_path: UPath, tiny_tokenizer: Path) -> None:
    rng = random.Random(0)
    texts = [" ".join(rng.choices(WORDS, k=200)) for _ in range(20)]
    lines = [json.dumps({"text": text}) for text in [*texts, texts[0], "too short"]]
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    live(tmp_path, "first", tiny_tokenizer)  # modules are imported, and kernels compiled
    seen = FirstCalls()
    threading.setprofile(seen)
    sys.setprofile(seen)
    try:
        live(tmp_path, "second", tiny_tokenizer)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    expected = stations()
    assert len(expected) > 30
    assert set(expected) - set(seen.calls) == set()
    assert [call for call in seen.calls if call in set(expected)] == expected
