"""Extract text from pages, also if a page hangs or crashes the extractor or is not a page."""

import hashlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from etl.errors import RecipeError, StageError
from etl.stages import Extract, Where
from etl.stages.apply import apply
from etl.stages.transforms import extract
from etl.text import html, html_worker
from etl.text.main_text import KINDS
from etl.text.main_text_model import BUILT_IN
from tests.helpers.raw_rows import raw
from tests.helpers.warc_archives import HANGS

ROOT = Path(__file__).parents[2]
PAGE = "<html><body><main><h1>Heading</h1><p>A sentence.</p></main></body></html>"
TEXT = "Heading\n\nA sentence."


def _apply(texts, **fields) -> list[dict]:
    return apply(raw(texts), [Extract(**fields)]).to_pylist()


def _child_pid() -> int:
    """Return the pid of the child of this process."""
    child = html._extraction_of(os.getpid(), "resiliparse", 1.0)._child
    assert child is not None
    return child.process.pid


def _is_running(pid: int) -> bool:
    """Return whether a process is running; a zombie is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _ends(pid: int) -> bool:
    for _ in range(200):
        if not _is_running(pid):
            return True
        time.sleep(0.05)
    return False


def test_a_page_that_hangs_is_rejected_alone() -> None:
    rows = _apply([PAGE, HANGS, PAGE, "plain", HANGS, PAGE], seconds=0.2)
    reasons = [row["reason"] for row in rows]
    assert reasons == [None, "extract.timeout", None, None, "extract.timeout", None]
    assert [row["text"] for row in rows] == [TEXT, None, TEXT, "plain", None, TEXT]
    assert json.loads(rows[1]["metadata"]) == {"error": "more than 0.2 s of processor time"}
    assert rows[1]["extract_html_chars"] == len(HANGS)
    assert rows[0]["metadata"] is None


def test_wall_time_is_limited_too() -> None:
    code = "import runpy, sys, time\nwith runpy.run_path(sys.argv[1])['limit_time'](0.02): time.sleep(60)"
    done = subprocess.run([sys.executable, "-c", code, html_worker.__file__], check=False)
    assert done.returncode == -signal.SIGALRM


def test_timers_are_cleared_after_the_block() -> None:
    with html_worker.limit_time(5):
        assert signal.getitimer(signal.ITIMER_PROF)[0] > 0
    assert signal.getitimer(signal.ITIMER_PROF) == signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_errors_are_added_to_the_metadata() -> None:
    outcomes = [
        html.ExtractedPage(b"a"),
        html.ExtractedPage(None, "failed", "ValueError: ü"),
        html.ExtractedPage(),
    ]
    metadata = extract._add_errors(pa.array([None, '{"b":1}', None], pa.string()), outcomes)
    assert metadata.to_pylist() == [None, '{"b": 1, "error": "ValueError: ü"}', None]
    texts = pa.array([outcome.text for outcome in outcomes], pa.string())
    assert extract._reasons(outcomes, texts).to_pylist() == [None, "extract.failed", None]


def test_a_killed_child_is_replaced() -> None:
    assert _apply([PAGE])[0]["text"] == TEXT
    first = _child_pid()
    os.kill(first, signal.SIGKILL)
    assert _ends(first)
    assert [row["text"] for row in _apply([PAGE] * 3)] == [TEXT] * 3
    assert _child_pid() != first


def test_a_child_is_reused_for_the_next_batch() -> None:
    _apply([PAGE])
    first = _child_pid()
    _apply([PAGE] * 2000)
    assert _child_pid() == first


def test_answers_to_an_interrupted_batch_are_not_used_for_the_next() -> None:
    def interrupt(number: int, _: object) -> None:
        raise InterruptedError(number)

    def extracted(*texts: str) -> list[html.ExtractedPage]:
        contents = [text.encode() for text in texts]
        return list(html.extract_pages(contents, extractor="resiliparse", seconds=1.5))

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        assert extracted("<p>0</p>")[0].text == b"0"
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(InterruptedError):
            extracted("<p>1</p>", HANGS)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert [outcome.text for outcome in extracted("<p>2</p>", "<p>3</p>")] == [b"2", b"3"]


def test_the_child_ends_with_its_parent() -> None:
    code = (
        "import os, signal, sys\n"
        "from etl.text import html\n"
        "list(html.extract_pages([b'<p>one</p>'], extractor='resiliparse', seconds=1.0))\n"
        "child = html._extraction_of(os.getpid(), 'resiliparse', 1.0)._child\n"
        "print(child.process.pid, flush=True)\n"
        "os.kill(os.getpid(), int(sys.argv[1]))\n"
    )
    signals = (int(signal.SIGKILL), 0)  # killed, and with a normal exit
    command = [sys.executable, "-c", code]
    parents = [
        subprocess.Popen([*command, str(number)], cwd=ROOT, stdout=subprocess.PIPE)
        for number in signals
    ]
    for number, parent in zip(signals, parents, strict=True):
        child = parent.communicate()[0]
        assert parent.returncode == -number
        assert _ends(int(child))


def test_threads_take_turns() -> None:
    texts = [f"<p>page {number}</p>" for number in range(50)]
    results: dict[int, list[str]] = {}

    def work(number: int) -> None:
        results[number] = [row["text"] for row in _apply(texts)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(results.values()) == [[f"page {number}" for number in range(50)]] * 4


def test_a_fork_starts_another_child() -> None:
    assert _apply([PAGE])[0]["text"] == TEXT
    first = _child_pid()
    code = (
        "import os, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "from etl.text import html\n"
        "go = lambda: list(html.extract_pages([b'<p>1</p>'], extractor='resiliparse', seconds=1.0))\n"
        "go()\n"
        "pid = os.fork()\n"
        "good = [o.text for o in go()] == [b'1']\n"
        "if pid == 0: os._exit(0 if good else 1)\n"
        "assert os.waitpid(pid, 0)[1] == 0 and go()[0].text == b'1'\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    assert _child_pid() == first


def test_rejected_documents_are_not_extracted() -> None:
    first, second = apply(raw([HANGS, PAGE]), [Where(keep="row > 0"), Extract()]).to_pylist()
    assert first["reason"].startswith("where.")
    assert first["extract_html_chars"] is None
    assert second["text"] == TEXT


def test_the_media_type_is_that_of_the_text_before_the_stage() -> None:
    table = raw(["&lt;i&gt;", "&lt;i&gt;"], media_type=["text/html", None])
    once, twice = (apply(table, [Extract()] * times).to_pylist() for times in (1, 2))
    assert [row["text"] for row in once] == [row["text"] for row in twice] == ["<i>", "&lt;i&gt;"]
    assert "media_type" not in once[0]


def test_a_missing_extractor_is_an_error(monkeypatch, tmp_path) -> None:
    (tmp_path / "resiliparse.py").write_text("raise ImportError('no such library')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(StageError, match="resiliparse cannot be used: no such library"):
        list(html.extract_pages([b"<p>"], extractor="resiliparse", seconds=0.123))


def test_identity_contains_the_version_of_the_extractor() -> None:
    identity = Extract().identity()
    assert identity["version"]
    assert identity != Extract(extractor="trafilatura").identity()


def test_settings_that_have_no_effect_are_refused() -> None:
    for fields in ({"favor": "recall"}, {"keep": ()}, {"extractor": "tokenlake", "seconds": 2}):
        with pytest.raises(RecipeError, match="has no effect with the extractor"):
            Extract(**fields)


def test_identity_of_tokenlake_contains_its_settings_and_model() -> None:
    def identity(**fields):
        return Extract(extractor="tokenlake", **fields).identity()

    assert identity()["model"] == hashlib.sha256(BUILT_IN.read_bytes()).hexdigest()
    assert identity() != identity(favor="recall")
    assert (
        identity(keep=["math", "lists", "math"]) == identity(keep=("lists", "math")) != identity()
    )
    assert not {"favor", "keep", "model"} & Extract().identity().keys()


def test_metadata_of_a_page_are_added() -> None:
    page = f"<title>T</title>{PAGE}"
    given = [None, "{}", '{"a":"é"}', '{"extract":1,"b":[2]}', '{"extract":1}', '{"a":1}', None]
    texts = [*[page] * 4, "plain", "plain", PAGE]
    rows = apply(raw(texts, metadata=given), [Extract(extractor="tokenlake")]).to_pylist()
    assert [row["metadata"] and json.loads(row["metadata"]) for row in rows] == [
        {"extract": {"title": "T"}},
        {"extract": {"title": "T"}},
        {"a": "é", "extract": {"title": "T"}},
        {"b": [2], "extract": {"title": "T"}},
        {"extract": 1},
        {"a": 1},
        None,
    ]


def test_tokenlake_recalls_more_or_is_more_precise(data) -> None:
    """Each setting keeps all of the blocks of the more precise one; shares of main text say so."""
    table = pq.read_table(data / "web" / "mdn-html-00000.parquet").slice(0, 100)
    ratios = [
        Extract(extractor="tokenlake", favor=favor, keep=KINDS).apply(
            raw(table["text"].to_pylist())
        )["extract_main_ratio"]
        for favor in ("precision", "balanced", "recall")
    ]
    for less, more in itertools.pairwise(ratios):
        assert pc.all(pc.less_equal(less, more)).as_py()
        assert pc.sum(less).as_py() < pc.sum(more).as_py()


_PIECES = st.sampled_from(
    ["<p>", "</p>", "<div>", "<b", ">", "&amp;", "&#x1F600;", "<!--", "]]>", "<script>", "\0", "אב"]
)
_PAGES = st.lists(_PIECES | st.text(st.characters(exclude_categories=["Cs"])), max_size=8)


@settings(max_examples=60)
@given(st.lists(_PAGES.map("".join), max_size=6), st.booleans())
@example(["", "<p>\u0301</p>", "<p>\U0001f600\r\n\x85\u200b</p>"], True)
def test_the_text_is_that_of_the_extractor_in_any_batch(texts, all_html) -> None:
    direct = html_worker.load_extractor("resiliparse")
    stage = Extract(all_html=all_html)
    table = raw(texts)
    result = stage.apply(table)
    is_page = stage._find_pages(pa.array(texts, pa.string()), table["media_type"]).to_pylist()
    for text, page, row in zip(texts, is_page, result.to_pylist(), strict=True):
        assert row["text"] == (direct(text) if page else text)
        assert row["extract_html_chars"] == (len(text) if page else None)
        assert (row["reason"] == "extract.empty") == (page and not row["text"].strip())
    alone = [stage.apply(table.slice(n, 1)).to_pylist()[0] for n in range(len(texts))]
    assert alone == result.to_pylist()


def test_batches_of_any_size_are_extracted() -> None:
    big = "<p>" + "word " * 300_000 + "</p>"
    texts = [big, "<p>1</p>", big, *(f"<p>{n}</p>" for n in range(3000))]
    extracted = Extract().apply(raw(texts))["text"].to_pylist()
    assert extracted[1] == "1"
    assert extracted[3:] == [str(n) for n in range(3000)]
    assert len(extracted[0]) == len(extracted[2]) == 5 * 300_000 - 1
    empty = Extract().apply(raw([]))
    assert empty.num_rows == 0


def test_real_pages(data) -> None:
    table = pq.read_table(data / "web" / "mdn-html-00000.parquet").slice(0, 200)
    texts = table["text"].to_pylist()
    for extractor, count in (("resiliparse", 200), ("trafilatura", 8)):
        direct = html_worker.load_extractor(extractor)
        result = Extract(extractor=extractor, seconds=10).apply(raw(texts[:count]))
        assert result["text"].to_pylist() == [direct(text) for text in texts[:count]]
