"""Labels and probabilities of fastText models of all variants, compared with fastText's."""

import re
import shutil
import subprocess
from pathlib import Path

import fasttext
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from etl.kernels.fasttext import label_scores, text_vectors, token_table
from etl.text import fasttext_file, language_id
from etl.text.fasttext_file import DamagedModelError, read_model
from etl.text.fasttext_model import FastTextModel, load_local_model
from tests.helpers.fasttext_models import LABELS, VARIANTS, WORDS, Variant, write_variant

CLOSE = 1e-4
CELL = 0.008  # of fastText's table of the logistic function
TABLES = (2, 4)  # the losses that use it

_SPACES = (" ", "\t", "\v", "\f", "\r", "\0", "  ")
_ODD = (
    "\xa0",
    "\x1c",
    "\x85",
    "\u2028",
    "\u3000",
    "\x7f",
    "\ufeff",
    "😀",
    "e\u0301",
    "<",
    ">",
    "<>",
)
_PIECES = st.one_of(
    st.sampled_from(
        (*WORDS, *LABELS, *_SPACES, *_SPACES, *_ODD, "__label__", "__label__q", "__label")
    ),
    st.text(max_size=5),
    st.sampled_from("ab語мñ").flatmap(lambda char: st.integers(1, 600).map(lambda n: char * n)),
)
TEXTS = st.lists(_PIECES, max_size=12).map(lambda pieces: "".join(pieces).replace("\n", " "))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name, variant in VARIANTS.items():
        write_variant(folder / name, variant)
    return folder


@pytest.fixture(scope="module", params=VARIANTS)
def models(request, folder):
    """Our model, fastText's, and what they are a variant of."""
    path = folder / request.param
    return (
        load_local_model(path, str(path)),
        fasttext.load_model(str(path)),
        VARIANTS[request.param],
    )


def reference(model, line: bytes, k: int) -> dict[str, float]:
    """The labels and scores of fastText, best first; it takes bytes as they are."""
    found = model.f.predict(line + b"\n", k, 0.0 if k == 1 else -1.0, "replace")
    return {label: min(score, 1.0) for score, label in found}


def check(models, lines: list[bytes]) -> None:
    model, theirs, variant = models
    limit, equal = (CELL, CELL) if variant.loss in TABLES else (CLOSE, 1e-6)
    column = pa.array(lines, pa.binary()).view(pa.string())
    labels, scores = model.best(column)
    every = model.scores(column, model.labels)
    for k, line in enumerate(lines):
        wanted = reference(theirs, line, len(model.labels))
        if not wanted:
            assert labels[k].as_py() is None
            assert scores[k].as_py() is None
            continue
        (best,) = reference(theirs, line, 1)
        mine = model.full_label(labels[k].as_py())
        assert mine == best or wanted[best] - wanted[mine] < equal
        assert scores[k].as_py() == pytest.approx(wanted[best], abs=limit)
        if is_one_line(line):
            found = [column[k].as_py() for column in every]
            assert found == pytest.approx([wanted[label] for label in model.labels], abs=limit)


def is_one_line(line: bytes) -> bool:
    """Whether a text is its only line, stripped: other texts are prepared before they are scored."""
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return False
    return " ".join(text.strip().splitlines()) == text


@given(lines=st.lists(TEXTS, min_size=1, max_size=20))
@example(
    lines=[
        "",
        " ",
        "</s>",
        "the </s> and",
        "__label__en the",
        "no_prefix",
        "a" * 5000,
        "語" * 600,
        "ab the " * 900,
    ]
)
def test_labels_and_scores_are_those_of_fasttext(models, lines):
    check(models, [line.encode("utf-8", "surrogatepass") for line in lines])


@given(line=st.binary(max_size=40))
def test_bytes_that_are_not_utf8_are_read_as_by_fasttext(models, line):
    line = line.replace(b"\n", b" ")
    assume(not re.search(rb"[\x80-\xbf]{4}", line))
    check(models, [line])


@given(line=TEXTS)
def test_lines_are_joined_and_stripped(models, line):
    model, _, _ = models
    joined = " ".join(line.strip().splitlines())
    found = [column.to_pylist() for column in model.scores(pa.array([line, joined]), model.labels)]
    assert all(one == other for one, other in found)


@given(line=TEXTS, chars=st.integers(1, 200))
def test_the_first_characters_are_read(models, line, chars):
    model, _, _ = models
    line = re.sub(r"[\ud800-\udfff]", "?", line)
    (labels, scores) = model.best(pa.array([line, line[:chars]]), max_chars=chars)
    assert labels[0] == labels[1]
    assert scores[0] == scores[1]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_mapped_model_gives_the_same(folder, monkeypatch, variant):
    path, lines = folder / variant, pa.array(["the мир abc", "", "你好 über </s> x"])
    before = load_local_model(path, "").scores(lines, load_local_model(path, "").labels)
    monkeypatch.setattr(fasttext_file, "_MAPPED_BYTES", 0)
    mapped = load_local_model(path, "")
    assert mapped.file.model.vectors.dense.size == 0 or VARIANTS[variant].dsub is None
    for one, other in zip(mapped.scores(lines, mapped.labels), before, strict=True):
        assert one.to_pylist() == pytest.approx(other.to_pylist(), abs=1e-6)


def test_one_compiled_kernel_serves_all_models(folder, monkeypatch):
    for limit in (0, 1 << 40):
        monkeypatch.setattr(fasttext_file, "_MAPPED_BYTES", limit)
        for name in VARIANTS:
            model = load_local_model(folder / name, "")
            for type_ in (pa.string(), pa.large_string()):
                texts = pa.array(["the", None], type_)
                model.best(texts, max_chars=9)
                model.scores(texts, model.labels[:1])
    assert len(text_vectors._sum_all.signatures) == 1
    assert len(label_scores._score_all.signatures) == 1


def test_a_result_does_not_depend_on_the_other_texts(folder):
    model = load_local_model(folder / "tree", "")
    texts = pa.array([f"word{k % 5000} the {k}" for k in range(9000)])
    whole = model.best(texts)
    assert whole[1][4000:].to_pylist() == model.best(texts[4000:])[1].to_pylist()


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_size_of_the_table_of_tokens_changes_nothing(folder, monkeypatch, variant):
    model = load_local_model(folder / variant, "")
    words = [f"w{k % 97}über {'語' * (k % 70)} the </x>{k % 13}" for k in range(3000)]
    texts = pa.array([" ".join(words[k : k + k % 40 + 1]) for k in range(300)] + [" ".join(words)])
    expected = model.scores(texts, model.labels)
    monkeypatch.setattr(token_table, "_BYTES", 1 << 9)
    monkeypatch.setattr(token_table, "_LEAST_SLOTS", 2)
    assert model.scores(texts, model.labels) == expected


@pytest.mark.parametrize("break_", [" ", "\r", "\x85", "\u2028", "\u2029 \u2028", "語"])
def test_blocks_of_bytes_may_end_anywhere(models, break_):
    model, _, _ = models
    lines = ["", *(f"{'x' * k}{break_}the{break_} über" for k in range(50, 80))]
    check(models, [line.encode() for line in lines])
    joined = [" ".join(line.strip().splitlines()) for line in lines]
    found, wanted = (model.scores(pa.array(texts), model.labels) for texts in (lines, joined))
    assert found == wanted


def test_nulls_and_slices(folder):
    model = load_local_model(folder / "words", "")
    texts = pa.array(["the", None, "and the", "x"])
    labels, scores = model.best(texts)
    assert labels[1].as_py() is None
    assert scores[1].as_py() is None
    assert model.best(texts[2:])[1].to_pylist() == scores[2:].to_pylist()
    assert model.best(pa.chunked_array([texts[:1], texts[1:]]))[1].equals(scores)
    assert [len(column) for column in model.best(pa.array([], pa.string()))] == [0, 0]


def test_of_words_with_equal_hashes_each_has_its_own_vector(tmp_path):
    words = ("e" * 40, "e" * 41, "e" * 32, "</s>")  # the hash is that of the first 32 bytes
    variant = Variant(words=words, dim=4)
    path = write_variant(tmp_path / "model", variant)
    model, theirs = load_local_model(path, ""), fasttext.load_model(str(path))
    hashes = model.file.model.vocabulary.hashes
    assert len(np.unique(hashes[np.isin(model.file.model.vocabulary.ids, range(3))])) == 1
    check((model, theirs, variant), [word.encode() for word in (*words, "e" * 42)])


@pytest.mark.skipif(shutil.which("fasttext") is None, reason="needs the command fasttext")
@pytest.mark.parametrize("loss", ["hs", "ns", "softmax", "ova"])
def test_trained_models(tmp_path, loss):
    rows = [
        f"__label__{k % 7} word{k % 31} " + "xyz"[k % 3] * (k % 5) + f" w{k}" for k in range(900)
    ]
    (tmp_path / "rows.txt").write_text("\n".join(rows), "utf-8")
    train = ["supervised", "-input", "rows.txt", "-output", "model", "-loss", loss, "-dim", "10"]
    train += ["-minn", "2", "-maxn", "4", "-wordNgrams", "2", "-bucket", "3000", "-thread", "1"]
    prune = ["quantize", "-input", "rows.txt", "-output", "model", "-qnorm", "-cutoff", "600"]
    for arguments in (train, prune):
        subprocess.run(["fasttext", *arguments], cwd=tmp_path, check=True, capture_output=True)
    for name in ("model.bin", "model.ftz"):
        path = tmp_path / name
        variant = Variant(loss=["hs", "ns", "softmax", "ova"].index(loss) + 1)
        ours = load_local_model(path, "")
        check((ours, fasttext.load_model(str(path)), variant), [row.encode() for row in rows[::9]])


@pytest.mark.slow
@pytest.mark.parametrize("part", ["docs", "bench"])
def test_the_languages_of_all_real_texts_are_those_of_fasttext(data, part):
    path = language_id.model_path()
    model, theirs = load_local_model(path, str(path)), fasttext.load_model(str(path))
    for file in sorted((data / part).glob("*.parquet")):
        if "text" not in (table := pq.ParquetFile(file)).schema_arrow.names:
            continue
        for batch in table.iter_batches(columns=["text"]):
            compare_languages(model, theirs, batch["text"])


@pytest.mark.slow
def test_the_languages_of_web_pages_are_those_of_fasttext(data):
    path = language_id.model_path()
    model, theirs = load_local_model(path, str(path)), fasttext.load_model(str(path))
    for file in sorted((data / "web").glob("*.parquet")):
        table = pq.read_table(file)
        for name in {"html", "text", "content"} & {*table.column_names}:
            compare_languages(model, theirs, table[name].cast(pa.string()))


def compare_languages(model: FastTextModel, theirs, column: pa.Array | pa.ChunkedArray) -> None:
    labels, scores = (found.to_pylist() for found in model.best(column, max_chars=1000))
    for label, score, text in zip(labels, scores, column.to_pylist(), strict=True):
        if text is None:
            assert label is None
            continue
        (wanted,), (probability,) = theirs.predict(text[:1000].replace("\n", " "), 1)
        assert label == wanted.removeprefix("__label__")
        assert score == pytest.approx(min(probability, 1.0), abs=CLOSE)


def test_a_file_cut_anywhere_is_refused(folder, tmp_path):
    content = (folder / "pruned pairs").read_bytes()
    path = tmp_path / "cut"
    for size in (*range(300), *range(300, len(content), 97), len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(DamagedModelError):
            read_model(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(DamagedModelError, match="1 bytes follow the model"):
        read_model(path)


@given(changes=st.dictionaries(st.integers(0, 400), st.integers(0, 255), min_size=1, max_size=4))
def test_a_damaged_file_is_refused_or_read(folder, changes):
    for name in ("tree", "pruned"):
        content = bytearray((folder / name).read_bytes())
        for at, byte in changes.items():
            content[at] = byte
        path = folder / f"{name} damaged"
        path.write_bytes(content)
        try:
            model = FastTextModel(read_model(path), "damaged")
        except DamagedModelError:
            continue
        model.scores(pa.array(["the мир abc", "你好"]), [model.labels[0]])


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [
        (4, 13, "a fastText model of version 13; only 11 and 12 can be read"),
        (8, 0, "its vectors have 0 dimensions"),
        (28, 0, r"its n-grams have lengths \(2, 4, 0\)|its loss"),
        (32, 9, "its loss is 9, not 1 to 4"),
        (36, 1, "not a supervised fastText model"),
        (40, 0, "it has n-grams, but no buckets"),
        (48, 100_000, "its n-grams have lengths"),
        (72, 0, "its labels are missing"),
    ],
)
def test_impossible_settings_are_refused(folder, tmp_path, offset, value, message):
    content = bytearray((folder / "tree").read_bytes())
    content[offset : offset + 4] = value.to_bytes(4, "little")
    path = tmp_path / "model"
    path.write_bytes(content)
    if offset == 28:
        read_model(path)  # no n-grams of words
        return
    with pytest.raises(DamagedModelError, match=message):
        read_model(path)


def test_weights_that_are_not_numbers_are_an_error(folder, tmp_path):
    content = bytearray((folder / "tree").read_bytes())
    content[-4:] = b"\xff\xff\xff\xff"
    content[-4 * 16 * 6 :] = b"\xff" * (4 * 16 * 6)
    path = tmp_path / "model"
    path.write_bytes(content)
    with pytest.raises(Exception, match="weights that are not numbers"):
        load_local_model(Path(path), "here").best(pa.array(["the"]))
