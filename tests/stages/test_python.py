"""Filters by a user's Python function: verdicts, scores, module lookup and errors."""

import pickle
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from etl.errors import RecipeError, StageError
from etl.stages.apply import apply
from etl.stages.filters.python import Python
from etl.stages.filters.where import Where
from tests.helpers.raw_rows import raw

HERE = str(Path(__file__).parent)
TABLE = pa.table({"source": ["a.parquet"] * 3, "row": [1, 2, 3], "text": ["a", "b", "c"]})


def filters(folder, code: str, name: str = "my_filters") -> Path:
    path = folder / f"{name}.py"
    path.write_text(code)
    return path


@pytest.mark.parametrize(
    "result",
    [
        "pa.array([True, False, None])",
        "pa.chunked_array([[True, False], [None]])",
        "[True, False, None]",
        "[None, 'f', None]",
        "pl.Series([True, False, None])",
        "pa.array([None, 'f', None], pa.large_string())",
        "np.array([None, 'f', None], dtype=object)",
    ],
)
def test_a_function_may_return_any_array_or_sequence(result, tmp_path):
    imports = "import numpy as np, polars as pl, pyarrow as pa"
    filters(tmp_path, f"{imports}\ndef f(table):\n    return {result}\n")
    stage = Python(call="my_filters:f", folder=str(tmp_path))
    assert stage.reasons(TABLE).to_pylist() == [None, "python.f", None]
    assert stage.reasons(TABLE).type == pa.string()


def test_a_function_may_return_numpy_booleans(tmp_path):
    filters(tmp_path, "import numpy as np\ndef f(t):\n    return np.array([True, False, True])\n")
    stage = Python(call="my_filters:f", folder=str(tmp_path), name="odd")
    assert stage.reasons(TABLE).to_pylist() == [None, "python.odd", None]


def test_all_null_keeps_all(tmp_path):
    filters(tmp_path, "def f(table):\n    return [None] * 3\n")
    stage = Python(call="my_filters:f", folder=str(tmp_path))
    assert stage.reasons(TABLE).to_pylist() == [None] * 3


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("short", "returned 2 values for a table of 3 rows"),
        ("numbers", "returned values of type int64 for a table of 3 rows"),
        ("number", "returned int .* for a table of 3 rows"),
    ],
)
def test_results_that_are_not_verdicts_are_errors(function, message):
    with pytest.raises(StageError, match=message):
        Python(call=f"example_filters:{function}", folder=HERE).reasons(TABLE)


def test_errors_per_document_name_the_row():
    stage = Python(call="example_filters:fails_at_two", folder=HERE, per="document")
    with pytest.raises(StageError, match=r"a.parquet row 2: .*ValueError: two is bad"):
        stage.reasons(TABLE)
    stage = Python(call="example_filters:number", folder=HERE, per="document")
    with pytest.raises(StageError, match=r"a.parquet row 1: .* returned 1"):
        stage.reasons(TABLE)


def test_a_missing_module_or_function_is_an_error():
    with pytest.raises(RecipeError, match="(?s)no Python module 'example_filter'.*example_filters"):
        Python(call="example_filter:polite", folder=HERE).identity()
    with pytest.raises(RecipeError, match="(?s)no function 'polit'.*did you mean 'polite'"):
        Python(call="example_filters:polit", folder=HERE).load()
    with pytest.raises(RecipeError, match="(?s)no function 'xyz'.*known names: has_digit, "):
        Python(call="example_filters:xyz", folder=HERE).load()
    with pytest.raises(RecipeError, match="no Python module 'nowhere.filters'"):
        Python(call="nowhere.filters:f", folder=HERE).load()


def test_a_module_that_fails_to_import_is_an_error(tmp_path):
    path = filters(tmp_path, "import not_installed_anywhere\n", "broken")
    with pytest.raises(
        RecipeError, match="broken cannot be imported: ModuleNotFoundError"
    ) as caught:
        Python(call="broken:f", folder=str(tmp_path)).load()
    assert caught.value.where == str(path)
    assert "broken" not in sys.modules


@pytest.mark.parametrize("call", ["my_filters", "my_filters:", ":f", "a/b.py:f", "m:f(x)", "m:f:g"])
def test_a_call_is_module_and_function(call):
    with pytest.raises(RecipeError, match="call"):
        Python(call=call)


def test_identity_depends_on_the_code_and_not_on_the_folder(tmp_path):
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
        filters(folder, "def f(table):\n    return [True] * 3\n")
    one, two = (Python(call="my_filters:f", folder=str(folder)) for folder in folders)
    assert one.identity() == two.identity()
    names = {"kind", "call", "per", "name", "min_score", "max_score", "sees", "sha256"}
    assert set(one.identity()) == names
    filters(folders[1], "def f(table):\n    return [False] * 3\n")
    assert one.identity() != two.identity()
    assert one.reasons(TABLE).to_pylist() == [None] * 3
    assert two.reasons(TABLE).to_pylist() == ["python.f"] * 3


def test_changed_code_is_imported_again(tmp_path):
    stage = Python(call="my_filters:f", folder=str(tmp_path))
    for verdict, reason in [(True, None), (False, "python.f")]:
        filters(tmp_path, f"def f(table):\n    return [{verdict}] * 3\n")
        assert stage.reasons(TABLE).to_pylist() == [reason] * 3


def test_other_modules_and_packages_can_be_imported(tmp_path):
    package = tmp_path / "web_rules"
    package.mkdir()
    filters(package, "", "__init__")
    filters(package, "KEEP = True\n", "settings")
    filters(package, "from .settings import KEEP\ndef f(table):\n    return [KEEP] * 3\n", "deep")
    filters(tmp_path, "import web_rules.deep as deep\nf = deep.f\n", "flat_rules")
    path = list(sys.path)
    for module in ("flat_rules", "web_rules.deep"):
        stage = Python(call=f"{module}:f", folder=str(tmp_path))
        assert stage.reasons(TABLE).to_pylist() == [None] * 3
    assert sys.path == path


def test_the_default_folder_is_the_working_folder(tmp_path, monkeypatch):
    filters(tmp_path, "def f(table):\n    return [True] * 3\n", "here")
    monkeypatch.chdir(tmp_path)
    assert Python(call="here:f").reasons(TABLE).to_pylist() == [None] * 3


def test_a_stage_can_be_pickled():
    stage = Python(call="example_filters:polite", folder=HERE, per="document")
    stage.load()
    again = pickle.loads(pickle.dumps(stage))
    assert again == stage
    assert again.reasons(TABLE).to_pylist() == ["python.polite"] * 3


def test_a_function_per_document_may_return_numpy_booleans(tmp_path):
    filters(
        tmp_path, "import numpy as np\ndef f(document):\n    return np.bool_(document['row'] > 1)\n"
    )
    stage = Python(call="my_filters:f", folder=str(tmp_path), per="document")
    assert stage.reasons(TABLE).to_pylist() == ["python.f", None, None]


@pytest.mark.parametrize(
    "result",
    [
        "pa.array([0.5, 2.0, None])",
        "pa.chunked_array([[0.5, 2.0], [None]])",
        "[0.5, 2.0, None]",
        "np.array([0.5, 2.0, np.nan])",
        "pl.Series([0.5, 2.0, float('nan')])",
    ],
)
def test_scores_are_stored_in_a_column(result, tmp_path):
    imports = "import numpy as np, polars as pl, pyarrow as pa"
    filters(tmp_path, f"{imports}\ndef f(table):\n    return {result}\n")
    stage = Python(call="my_filters:f", folder=str(tmp_path), max_score=1)
    assert stage.columns() == {"python_f": "score"}
    measured = stage.measure(TABLE)
    assert measured.schema == pa.schema([("python_f", pa.float64())])
    assert measured["python_f"].to_pylist() == [0.5, 2.0, None]
    assert stage.reasons(measured).to_pylist() == [None, "python.f_high", None]


@pytest.mark.parametrize(
    ("limits", "reasons"),
    [
        ({"min_score": 1.0}, ["python.size_low", None, None]),
        ({"max_score": 1.0}, [None, None, "python.size_high"]),
        ({"min_score": 1, "max_score": 1}, ["python.size_low", None, "python.size_high"]),
        ({"min_score": 0.0}, [None, None, None]),
        ({"max_score": 0.0}, [None, "python.size_high", "python.size_high"]),
    ],
)
@pytest.mark.parametrize("per", ["table", "document"])
def test_scores_at_the_limits_are_kept(limits, reasons, per, tmp_path):
    code = (
        "import pyarrow.compute as pc\n"
        "def of_table(t):\n    return pc.utf8_length(t['text'])\n"
        "def of_document(d):\n    return len(d['text'])\n"
    )
    filters(tmp_path, code)
    stage = Python(
        call=f"my_filters:of_{per}", folder=str(tmp_path), per=per, name="size", **limits
    )
    result = apply(raw(["", "a", "bb"]), [stage])
    assert result["reason"].to_pylist() == reasons
    assert result["python_size"].to_pylist() == [0.0, 1.0, 2.0]


def test_rejected_documents_have_no_score():
    stage = Python(call="example_filters:number", folder=HERE, per="document", min_score=2)
    result = apply(raw(["a", "bb", "ccc"]), [Where(keep="num_chars < 3"), stage])
    assert result["reason"].to_pylist() == ["python.number_low", None, "where.condition"]
    assert result["python_number"].to_pylist() == [1.0, 2.0, None]


def test_rejected_documents_have_a_score_if_asked_for():
    stage = Python(
        call="example_filters:number", folder=HERE, per="document", min_score=2, sees="all"
    )
    result = apply(raw(["a", "bb", "ccc", None]), [Where(keep="num_chars < 3"), stage])
    assert result["python_number"].to_pylist() == [1.0, 2.0, 3.0, None]
    assert result["reason"].to_pylist()[:3] == ["python.number_low", None, "where.condition"]
    with pytest.raises(RecipeError, match="`sees: all` requires a score"):
        Python(call="example_filters:number", sees="all")


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("[True, False, None]", "values of type bool"),
        ("['a', 'b', 'c']", "values of type string"),
        ("[1.0]", "1 value for a table of 3 rows"),
    ],
)
def test_results_that_are_not_scores_are_errors(result, message, tmp_path):
    filters(tmp_path, f"def f(table):\n    return {result}\n")
    stage = Python(call="my_filters:f", folder=str(tmp_path), min_score=0.0)
    with pytest.raises(StageError, match=message) as caught:
        stage.measure(TABLE)
    assert "one number" in str(caught.value.hint)
    stage = Python(call="example_filters:polite", folder=HERE, per="document", min_score=0.0)
    with pytest.raises(StageError, match=r"a.parquet row 1: .* returned False") as caught:
        stage.measure(TABLE)
    assert caught.value.hint == "return a number or None"


def test_the_name_of_a_score_must_be_a_column_name():
    with pytest.raises(RecipeError, match="'my score' cannot name the column of a score"):
        Python(call="my_filters:f", name="my score", min_score=0.0)
    assert Python(call="my_filters:f", name="my verdict").columns() == {}
    with pytest.raises(RecipeError, match="finite"):
        Python(call="my_filters:f", max_score=float("nan"))
