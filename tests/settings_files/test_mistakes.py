"""Every kind of settings file reports every kind of mistake in the same words, with its own noun."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etl.compute.kubernetes.cluster_file import ClusterFile
from etl.compute.slurm import SlurmFile
from etl.errors import ClusterError, RecipeError, TokenlakeError
from etl.job.prices import SHIPPED, Prices
from etl.recipe.recipe import Recipe

KINDS: dict[str, tuple[Callable[[Path], Any], type[TokenlakeError], str, tuple[str, str]]] = {
    "recipe": (
        Recipe.load,
        RecipeError,
        "name: web\nsource: {path: in.jsonl}\nstages: [c4]\nseed: 1\n",
        ("seed", "integer"),
    ),
    "cluster file": (
        ClusterFile.load,
        ClusterError,
        "image: x\ncpu: 2\nname: web\nidle_timeout: 90\n",
        ("idle_timeout", "integer"),
    ),
    "Slurm file": (
        SlurmFile.load,
        ClusterError,
        "partition: batch\naccount: lm\nmemory: 4Gi\nwalltime: 30\n",
        ("walltime", "integer"),
    ),
    "prices file": (
        Prices.load,
        RecipeError,
        re.sub(r"(?m)^(#.*)?\n", "", SHIPPED.read_text("utf-8")),
        ("gigabyte_to_internet", "number"),
    ),
}
"""Noun -> how to load a file, the error, the text of one, and a key whose value is a number."""


@pytest.fixture(params=KINDS)
def noun(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _error_of(noun: str, path: Path) -> TokenlakeError:
    """Return the error of a file, after a check that it names the file by its noun and by no other."""
    load, kind, _, _ = KINDS[noun]
    with pytest.raises(TokenlakeError) as caught:
        load(path)
    assert type(caught.value) is kind
    text = str(caught.value)
    assert text.startswith(f"{noun} {path}")
    about = text.replace(str(path), "")
    assert not [other for other in KINDS if other != noun and re.search(rf"\b{other}\b", about)]
    return caught.value


def test_a_valid_file_is_loaded(noun: str, tmp_path: Path) -> None:
    load, _, text, _ = KINDS[noun]
    path = tmp_path / "file.yaml"
    path.write_text(text, "utf-8")
    assert load(path) == load(path)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a: ]", "invalid YAML: did not find expected node content"),
        ("\ta: b", "invalid YAML: found"),
        ("a: *b", "invalid YAML: found undefined alias"),
        ("? [a]\n: b", "invalid YAML: found unhashable key"),
        ("a: !!python/none x", "invalid YAML: could not determine a constructor"),
        ("a: !!binary xyz", "invalid YAML: failed to decode base64 data"),
        ("--- {}", "invalid YAML: but found another document"),
        ("a: 2026-13-45", "the value '2026-13-45' cannot be read"),
        ("a: 99999999999999999999", "the number '99999999999999999999' has more than 64 bits"),
        ("NEARKEY: 1", "unknown key 'NEARKEY'"),
        ("KEY: 1\nKEY: 2", "the key 'KEY' occurs twice"),
        ("KEY: many", "KEY: input should be a valid TYPE, "),
        ("KEY: '5'", "KEY: input should be a valid TYPE, "),
        ("KEY: yes", "KEY: input should be a valid TYPE, not True"),
        ("KEY: [1]", "KEY: input should be a valid TYPE, not [1]"),
    ],
)
def test_a_mistake_has_its_line(noun: str, text: str, what: str, tmp_path: Path) -> None:
    _, _, valid, (key, kind) = KINDS[noun]
    *lines, last = valid.splitlines(keepends=True)
    start = "".join(lines) if "KEY" in text and "NEAR" not in text else valid
    assert last.startswith(key)

    def fill(pattern: str) -> str:
        return pattern.replace("NEARKEY", f"{key}s").replace("KEY", key).replace("TYPE", kind)

    path = tmp_path / "file.yaml"
    path.write_text(start + fill(text), "utf-8")
    error = _error_of(noun, path)
    assert error.what.startswith(fill(what))
    second = "occurs twice" in what
    assert error.where == f"{noun} {path}:{start.count(chr(10)) + 1 + second}"
    if "NEARKEY" in text:
        assert str(error.hint).startswith(f"did you mean {key!r}? known names: ")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("- 1", "must be a mapping"),
        ("text", "must be a mapping"),
        ("", "is empty"),
        ("# only a comment\n", "is empty"),
        ("---\n", "is empty"),
    ],
)
def test_what_is_not_a_mapping_is_refused(noun: str, text: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(text, "utf-8")
    error = _error_of(noun, path)
    assert (error.what, error.where) == (what, f"{noun} {path}")
    assert str(error.hint).startswith("write ")


def test_a_missing_file_is_reported_with_its_neighbours(noun: str, tmp_path: Path) -> None:
    assert _error_of(noun, tmp_path / "nowhere" / "file.yaml").hint
    (tmp_path / "file.yaml").touch()
    error = _error_of(noun, tmp_path / "fille.yaml")
    assert error.what == "not found"
    assert str(error.hint).startswith(f"did you mean '{tmp_path / 'file.yaml'}'?")


def test_what_is_not_a_text_file_is_reported(noun: str, tmp_path: Path) -> None:
    assert _error_of(noun, tmp_path).what == "is a folder"
    path = tmp_path / "file.yaml"
    path.write_bytes(b"a: \xff")
    assert _error_of(noun, path).what.startswith("cannot be read ('utf-8' codec")
    assert _error_of(noun, path / "inner.yaml").what.startswith("cannot be read ([Errno 20]")
    path.write_text("a" * (1 << 20) + "a")
    assert _error_of(noun, path).what == "is larger than 1048576 bytes"


def test_a_file_may_be_a_pipe(noun: str) -> None:
    load, _, text, _ = KINDS[noun]
    read, write = os.pipe()
    with os.fdopen(read), os.fdopen(write, "w") as stream:
        stream.write(text)
        stream.close()
        assert load(Path(f"/dev/fd/{read}"))


def test_several_mistakes_are_reported_at_once(noun: str, tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(f"{KINDS[noun][2]}one: 1\ntwo: 2\n", "utf-8")
    lines = str(_error_of(noun, path)).splitlines()
    assert [line for line in lines if line.startswith(f"{noun} {path}:")] == lines[::2]
    assert len(lines) == 4
