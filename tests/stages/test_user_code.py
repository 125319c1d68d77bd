"""Which files a user's module needs, what its digest covers, and how it is imported."""

import random
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import etl
from etl.errors import RecipeError, StageError
from etl.stages.filters.python import Python
from etl.storage.file_sets import Copies

TABLE = pa.table({"source": ["a.parquet"], "row": [1], "text": ["a"]})


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def names(stage: Python) -> list[str]:
    (files,) = stage.files().values()
    return [file.name for file in files.files]


def f(body: str, imports: str = "") -> str:
    return f"from pathlib import Path\n{imports}\ndef f(table):\n    {body}\n    return [True]\n"


def test_a_package_is_sent_whole_without_compiled_code(tmp_path: Path) -> None:
    files = ["rules/__init__.py", "rules/deep/__init__.py", "rules/deep/m.py", "rules/lists/en.txt"]
    others = ["rules/__pycache__/m.pyc", "rules/.git/HEAD", "rules/.hidden", "recipe.yaml"]
    write(tmp_path, dict.fromkeys([*files, *others, "rules/_model.bin"], ""))
    write(tmp_path, {"rules/deep/m.py": f("pass")})
    stage = Python(call="rules.deep.m:f", folder=str(tmp_path))
    assert names(stage) == sorted([*files, "rules/_model.bin"])


def test_a_module_is_sent_with_what_it_imports_and_names(tmp_path: Path) -> None:
    body = (
        "import late_helper, pyarrow, etl\n"
        "    open(Path(__file__).with_name('words.txt'))\n"
        "    Path(__file__).parent / 'lists' / 'en.txt'\n"
        "    Path(__file__).parent.joinpath('lists', 'de.txt')\n"
        "    'not a file', '', '/etc/passwd', '../outside.txt', 'folder'"
    )
    used = ["helper.py", "late_helper.py", "deeper.py", "words.txt", "lists/en.txt", "lists/de.txt"]
    used += ["space/inner.py"]
    unused = ["unused.py", "folder/big.bin", "lists/fr.txt", "recipe.yaml", "space/other.py"]
    home = write(tmp_path / "home", dict.fromkeys([*used, *unused, "../outside.txt"], ""))
    code = {
        "m.py": f(body, "from helper import x\nfrom space import inner"),
        "helper.py": "import deeper\nx = 1",
    }
    write(home, code)
    assert names(Python(call="m:f", folder=str(home))) == sorted([*used, "m.py"])
    more = Python(call="m:f", folder=str(home), data=["folder", "lists/fr.txt"])
    assert names(more) == sorted([*used, "m.py", "folder/big.bin", "lists/fr.txt"])


@pytest.mark.parametrize("data", ["missing.txt", "../outside.txt", "empty"])
def test_data_that_does_not_exist_below_the_folder_is_an_error(tmp_path: Path, data: str) -> None:
    write(tmp_path, {"home/m.py": f("pass"), "outside.txt": ""})
    (tmp_path / "home" / "empty").mkdir()
    with pytest.raises(RecipeError, match=f"`data` names '{data}'"):
        Python(call="m:f", folder=str(tmp_path / "home"), data=[data]).identity()


@pytest.mark.parametrize("changed", ["rules/m.py", "rules/other.py", "rules/words.txt", "near.py"])
def test_the_digest_covers_all_files(changed: str, tmp_path: Path) -> None:
    code = {
        "rules/__init__.py": "",
        "rules/other.py": "",
        "rules/words.txt": "",
        "near.py": "x = 1",
    }
    digests = []
    for place in ("one", "two", "three"):
        home = write(tmp_path / place, {**code, "rules/m.py": f("pass", "import near")})
        if place == "three":
            (home / changed).write_text((home / changed).read_text() + "\n# changed")
        digests.append(Python(call="rules.m:f", folder=str(home)).identity()["sha256"])
    assert digests[0] == digests[1] != digests[2]


def test_a_copy_has_the_same_digest_and_does_not_see_what_was_not_sent(tmp_path: Path) -> None:
    body = "name = 'wo' + 'rds.txt'; open(Path(__file__).with_name(name)).close()"
    home = write(tmp_path / "home", {"dynamic.py": f(body), "words.txt": ""})
    (tmp_path / "machine").mkdir()
    for data, is_sent in (([], False), (["words.txt"], True)):
        stage = Python(call="dynamic:f", folder=str(home), data=data)
        stage.reasons(TABLE)
        copies = Copies(list(stage.files().values()), tmp_path / "machine")
        copy = stage.with_paths({stage.folder: copies.paths[0]})
        assert copy.identity() == stage.identity()
        if is_sent:
            copy.reasons(TABLE)
            continue
        for per in ("table", "document"):
            with pytest.raises(StageError, match="FileNotFoundError") as caught:
                copy.model_copy(update={"per": per}).reasons(TABLE)
            assert "under `data` of the stage" in str(caught.value.hint)


def test_a_changed_helper_is_imported_again(tmp_path: Path) -> None:
    write(
        tmp_path, {"main_rule.py": "from helper_rule import VALUE\ndef f(t):\n    return [VALUE]\n"}
    )
    stage = Python(call="main_rule:f", folder=str(tmp_path))
    for value, reason in ((True, None), (False, "python.f")):
        write(tmp_path, {"helper_rule.py": f"VALUE = {value}\n"})
        assert stage.reasons(TABLE).to_pylist() == [reason]


def test_modules_of_the_same_name_in_two_folders_do_not_mix(tmp_path: Path) -> None:
    stages = []
    for place in ("first", "second"):
        main = f"import same_name\ndef {place}(t):\n    return [same_name.PLACE]\n"
        home = write(
            tmp_path / place, {"same_main.py": main, "same_name.py": f"PLACE = '{place}'\n"}
        )
        stages.append(Python(call=f"same_main:{place}", folder=str(home)))
    for stage in [*stages, *stages]:
        assert stage.reasons(TABLE).to_pylist() == [f"python.{stage.call.partition(':')[2]}"]


def test_libraries_stay_loaded_if_a_user_has_a_file_of_their_name(tmp_path: Path) -> None:
    before = {name: sys.modules[name] for name in ("random", "pyarrow", "etl")}
    home = write(tmp_path, {"m_random.py": f("pass", "import random, etl"), "random.py": ""})
    assert Python(call="m_random:f", folder=str(home)).reasons(TABLE).to_pylist() == [None]
    assert {name: sys.modules[name] for name in before} == before
    assert sys.modules["random"] is random
    assert sys.modules["etl"] is etl


@pytest.mark.parametrize("where", ["module", "function", "method"])
def test_a_missing_library_is_reported_at_the_check(where: str, tmp_path: Path) -> None:
    code = {
        "module": f("pass", "import not_there.deep"),
        "function": f("from not_there import x"),
        "method": "class A:\n    def g(self):\n        import not_there\n" + f("A().g()"),
    }[where]
    write(tmp_path, {f"needs_{where}.py": code})
    with pytest.raises(RecipeError, match="not_there") as caught:
        Python(call=f"needs_{where}:f", folder=str(tmp_path)).check()
    assert "`pip install not_there`" in str(caught.value.hint)
    assert "image" in str(caught.value.hint)


def test_a_library_that_is_optional_may_be_missing(tmp_path: Path) -> None:
    body = "try:\n        import not_there\n    except ImportError:\n        pass"
    imports = "if __file__ is None:\n    import not_there\ndef plot():\n    import not_there"
    write(tmp_path, {"optional.py": f(body, imports)})
    Python(call="optional:f", folder=str(tmp_path)).check()


def test_an_installed_module_is_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site-packages"
    write(site, {"installed_rules/__init__.py": "", "installed_rules/m.py": f("pass")})
    monkeypatch.syspath_prepend(site)
    stage = Python(call="installed_rules.m:f", folder=str(tmp_path))
    assert stage.files() == {}
    before = stage.identity()
    stage.check()
    write(site, {"installed_rules/m.py": f("pass") + "# changed"})
    assert stage.identity() != before


def test_a_module_elsewhere_on_the_path_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "elsewhere", {"found_rules/__init__.py": "", "found_rules/m.py": f("pass")})
    monkeypatch.syspath_prepend(tmp_path / "elsewhere")
    stage = Python(call="found_rules.m:f", folder=str(tmp_path))
    assert names(stage) == ["found_rules/__init__.py", "found_rules/m.py"]
