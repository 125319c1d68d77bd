"""Golden files, one per stage: documents below, at and above its thresholds, and the expected rows.

A document's ``text`` is a string or a list of [piece, repetitions]. It may have an ``id``, a ``url`` and a
``media_type``. Its ``stages`` replace the file's. With ``"extra": "segmenters"`` it is skipped where
these packages are not installed. ``expect`` gives columns of ``documents`` and of ``tokens``.
"""

import itertools
import json
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from etl.stages import AnyStage
from etl.stages.apply import apply
from etl.stages.tokenize import Encoder, Tokenize, tokenize
from etl.text import segmenters
from tests.helpers.raw_rows import raw

HERE = Path(__file__).parent
FILES = {path.stem: json.loads(path.read_text("utf-8")) for path in HERE.glob("golden/*.json")}
CASES = [
    pytest.param({"stages": file["stages"], **document}, id=f"{name}: {document['case']}")
    for name, file in FILES.items()
    for document in file["documents"]
]


@pytest.mark.parametrize("case", CASES)
def test_golden(case, monkeypatch):
    if case.get("extra") == "segmenters":
        for package in itertools.chain(*segmenters.PACKAGES.values()):
            pytest.importorskip(package, reason="needs pip install 'tokenlake[segmenters]'")
    monkeypatch.chdir(HERE)  # the folder of example_filters and golden/files
    text = case["text"]
    if not isinstance(text, str):
        text = "".join(piece * times for piece, times in text)
    stages = TypeAdapter(list[AnyStage]).validate_python(case["stages"])
    given = {name: [case[name]] for name in ("id", "url", "media_type") if name in case}
    documents = apply(raw([text], **given), stages)
    (row,) = documents.to_pylist()
    for stage in stages:
        if isinstance(stage, Tokenize):
            row |= tokenize(documents, Encoder.of(stage)).to_pylist()[0]
    row |= {name: value.hex() for name, value in row.items() if isinstance(value, bytes)}
    assert {name: row[name] for name in case["expect"]} == case["expect"]
    assert row["verdict"] == ("kept" if row["reason"] is None else "rejected")
