"""The tools that train the model of main text: truth by block, made pages, trees, scores."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from etl.kernels.html.describe import describe_page
from etl.kernels.html.features import NAMES
from etl.text.main_text_model import BUILT_IN, MainTextModel, load_model

ENGLISH = (
    "A heron waited in the shallow water, and did not move for an hour. Then it caught a small fish. ",
    "The boat was built of larch in the winter of that year, by two men who knew how it was done. ",
    "Nobody had asked why the lamps were lit so early, though everybody had seen it from the street. ",
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Paragraphs in each language of the made pages, in the place of the real ones."""
    from main_text.made import LANGUAGES, SCRIPTS

    folder = tmp_path_factory.mktemp("data")
    (folder / "docs").mkdir()
    rows: list[dict[str, str]] = []
    for language in sorted(set(LANGUAGES)):
        letter = SCRIPTS.get(language, "a")[0]
        parts = [
            "".join(letter if c.isalpha() and language in SCRIPTS else c for c in part)
            for part in ENGLISH
        ]
        rows.append({"text": "\n\n".join(parts * 5), "lang": language})
    pq.write_table(pa.Table.from_pylist(rows), folder / "docs" / "docs-00000.parquet")
    return folder


def test_labels_by_text_are_of_runs_of_words_and_of_whole_lines() -> None:
    from main_text.truth import labels_by_text

    blocks = [ENGLISH[0], "Home", "A heron", ENGLISH[1]]
    assert labels_by_text(blocks, f"A heron\n{ENGLISH[0]}").tolist() == [1, 0, 1, 0]


def test_languages_without_spaces_are_compared_by_character() -> None:
    from main_text.truth import grams, labels_by_text

    text = "今天天气很好，我们去公园散步。"
    assert len(grams(text)) == len("今天天气很好我们去公园散步") - 3
    assert labels_by_text([text[:9], "公司新闻首页登录"], text).tolist() == [1, 0]


def test_segments_say_nothing_of_other_blocks() -> None:
    from main_text.pages import Page
    from main_text.truth import labels

    page = Page("segments", "news", "en", "host", b"", required=("heron",), forbidden=("Imprint",))
    found = labels(page, ["The heron waited", "Imprint of the heron", "Else"])
    assert found[:2].tolist() == [1, 0]
    assert np.isnan(found[2])


def test_a_perfect_text_scores_1_and_optional_text_counts_neither_way() -> None:
    from main_text.pages import Page
    from main_text.scores import score

    page = Page("made", "news", "en", "t", b"", text=ENGLISH[0], optional=ENGLISH[1])
    assert score([page], [ENGLISH[0]]) == 1
    assert score([page], [ENGLISH[0] + "\n" + ENGLISH[1]]) > 0.85  # but for runs across both
    assert score([page], [ENGLISH[0] + "\n" + ENGLISH[2]]) < 0.8
    assert score([page], [""]) == 0


def test_a_bootstrap_of_equal_texts_is_zero() -> None:
    from main_text.scores import bootstrap

    rows = np.random.default_rng(1).random((20, 3))
    assert bootstrap(rows, rows, lambda found: float(found.mean())) == (0, 0, 0)


def test_made_pages_are_the_same_each_time_and_marks_do_not_change_their_blocks(
    corpus: Path,
) -> None:
    from main_text.made import make, names
    from main_text.pages import OPEN, WANTED

    assert len(names()) >= 40
    for template in names():
        page = make(corpus, template, 1)
        assert page == make(corpus, template, 1)
        assert page.marked is not None
        plain, marked = describe_page(page.html).texts, describe_page(page.marked).texts
        clean = [text.replace(WANTED, "").replace(OPEN, "") for text in marked]
        assert [text.split() for text in clean] == [text.split() for text in plain]
        assert any(WANTED in text for text in marked), template
        assert any(WANTED not in text for text in marked), template


def test_a_model_trained_on_made_pages_finds_their_text_in_another_template(corpus: Path) -> None:
    from main_text.dataset import examples
    from main_text.learn import as_model, extract_texts, train
    from main_text.made import make
    from main_text.oblivious_trees import Fit
    from main_text.scores import score

    seen = ("news_comments", "news_br", "blog_wordpress", "old_tables")
    chosen = examples(make(corpus, name, number) for name in seen for number in range(6))
    unseen = [each.page for each in examples(make(corpus, "news_short", n) for n in range(6))]
    how = Fit(trees=20, depth=4, rate=0.2)
    model = as_model(train(chosen, NAMES[:40], how), NAMES[:40], {})
    assert score(unseen, extract_texts(model, unseen)) > score(unseen, [_all(p) for p in unseen])


def _all(page: Any) -> str:
    return "\n".join(describe_page(page.html).texts)


def test_trees_are_deterministic_and_learn() -> None:
    from main_text.oblivious_trees import Fit, fit

    random = np.random.default_rng(0)
    x = random.random((3000, 5)).astype(np.float32)
    y = ((x[:, 0] > 0.5) ^ (x[:, 3] > 0.3)).astype(np.float32)
    how = Fit(trees=30, depth=3, rate=0.3, features_per_tree=1.0)
    first, second = (fit(x, y, np.ones(3000, np.float32), how) for _ in range(2))
    assert first.leaves.tobytes() == second.leaves.tobytes()
    assert np.mean((first.predict(x) > 0) == (y > 0.5)) > 0.98


def test_selectors_choose_outer_elements_once_and_leave_out_what_is_to_clean() -> None:
    from main_text.selected import rules, select

    html = b"<body><p>Menu<div class=a>One<div class=a>Two<p class=n>Note</p></div></div><div class=b>No"
    assert select(html, [".x", ".a"], [".n"]).split() == ["One", "Two"]
    assert len(rules()["postlight"]) > 80


def test_no_host_is_in_two_folds_and_www_is_no_difference() -> None:
    from main_text.pages import fold, host

    assert host("https://www.example.com/a") == host("http://example.com/b") == "example.com"
    assert {fold(f"host{i}", 3) for i in range(50)} == {0, 1, 2}


def test_the_built_in_model_is_small_and_says_what_it_was_trained_on() -> None:
    report = load_model().report
    assert BUILT_IN.stat().st_size < 200_000
    assert sum(report["pages"].values()) > 800
    assert len(report["data_sha256"]) == 64
    assert {"articles", "segments", "documentation"} <= {*report["f1_by_cross_validation"]}


def test_the_same_model_is_the_same_file(tmp_path: Path) -> None:
    model = load_model()
    for name in ("a", "b"):
        MainTextModel(**vars(model)).save(tmp_path / f"{name}.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_pages_of_packages_are_read_in_the_same_order_in_each_process(tmp_path: Path) -> None:
    from main_text.documentation import documentation

    manual = tmp_path / "apache2-doc" / "usr" / "share" / "doc" / "apache2-doc" / "manual"
    page = f"<body><p>Menu<div id=page-content>{''.join(ENGLISH) * 20}<p class=up>Up</div>"
    languages = ["de", "en", "es", "fr", "ja", "ko", "tr"]
    for language in languages:
        (manual / language).mkdir(parents=True)
        (manual / language / "a.html").write_text(page)
    found = list(documentation(tmp_path))
    assert [each.language for each in found] == languages
    assert found[0].text is not None
    assert "Menu" not in found[0].text
    assert "Up" not in found[0].text
