"""The command line: stdout and stderr, exit codes, JSON, help and examples of every command."""

import io
import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from deltalake import write_deltalake
from typer.main import get_command

from etl import storage
from etl.audit.duplicates.duplicate_report import duplicates
from etl.cli import options
from etl.cli.app import COMMANDS, app
from etl.cli.run_lines import show_quarantined
from etl.compute.certificates import make_certificates
from etl.compute.listener import Progress
from etl.compute.print_listener import PrintListener
from etl.delta.table import Table
from etl.job.run import run
from etl.lake.quarantine import Quarantined
from etl.loader import TokenDataset
from etl.loader.replay import replay
from etl.maintenance.optimize import optimize
from etl.maintenance.vacuum import RETAIN
from etl.recipe.json_schema import json_schema
from etl.recipe.recipe import Recipe
from tests.helpers.cli import ROOT, etl, start
from tests.helpers.corpus import records, write_jsonl, write_parquet
from tests.helpers.paths import at

NAMES = tuple(get_command(app).commands)
MODULES = [module for group in COMMANDS.values() for module in group]

NOT_OF_SUBMIT = {
    "tls": "the driver has the certificates of its pod",
    "memory_limit": "the cluster file says it",
    "dashboard": "is for workers on this machine",
    "as_json": "the driver prints the report, to its log",
}
"""Options of `etl run` that `etl submit` does not have, with the reason."""


def facts(*words: object, env: Mapping[str, str] | None = None) -> Any:
    """Return the result of a command with --json, which must print JSON and nothing else."""
    result = etl(*words, "--json", env=env)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return json.loads(result.stdout)


@pytest.fixture
def recipe_file(tmp_path: Path, tiny_tokenizer: Path) -> Path:
    """Return a recipe over two files in the same folder, one of which cannot be read."""
    (tmp_path / "crawl").mkdir()
    write_parquet(tmp_path / "crawl" / "a.parquet", records(0, 40))
    (tmp_path / "crawl" / "broken.parquet").write_bytes(b"PAR1 not a Parquet file PAR1")
    recipe = {
        "name": "web",
        "source": {"path": "crawl", "columns": {"text": "body", "id": "doc_id"}},
        "lake": "lake",
        "stages": ["gopher_quality", "dedup_exact", {"tokenize": str(tiny_tokenizer)}],
    }
    file = tmp_path / "web.yaml"
    file.write_text(yaml.safe_dump(recipe))
    return file


def test_the_version_is_printed_without_a_command() -> None:
    result = etl("--version")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"tokenlake {version('tokenlake')}\n"


@pytest.mark.parametrize("words", [("replay", "lake", "--seq-len", 8), ("losses", "lake")])
def test_without_torch_the_extra_to_install_is_named(words: tuple[object, ...]) -> None:
    code = "import sys; sys.modules['torch'] = None; from etl.cli import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr == (
        "error: the library torch is not installed\n  hint: pip install 'tokenlake[train]'\n"
    )


def run_and_list_imports(*commands: str) -> subprocess.CompletedProcess[str]:
    """Run commands in one process, which then prints the large libraries that it has imported to stderr."""
    code = (
        "import shlex, sys\n"
        "from etl.cli import main\n"
        f"for command in {commands!r}:\n"
        "    sys.argv = ['etl', *shlex.split(command)]\n"
        "    try: main()\n"
        "    except SystemExit as end: assert not end.code, command\n"
        "heavy = 'dask distributed polars pyarrow pandas numpy torch numba pydantic deltalake'\n"
        "print(*sorted(set(sys.modules) & set(heavy.split())), file=sys.stderr)"
    )
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )


def test_commands_that_only_read_the_log_import_no_kernels(made: Recipe) -> None:
    table = shlex.quote(made.table_url("documents"))
    result = run_and_list_imports(
        f"history {table}", f"status {made.lake}", f"releases {made.lake}"
    )
    assert set(result.stderr.split()) <= {"deltalake", "numpy", "pyarrow", "pydantic"}


def test_help_and_version_import_no_large_library() -> None:
    result = run_and_list_imports("--version", "--help")
    assert result.stderr.split() == []
    listed = re.findall(
        r"^  ([a-z]+) +[A-Z].*\.$", result.stdout.partition("Start:")[2], re.MULTILINE
    )
    assert tuple(listed) == NAMES, "a summary is cut off or takes two lines: make it shorter"
    assert result.stdout.rstrip().endswith("New here: `etl run demo --lake lake`")


def test_every_file_of_a_command_is_listed() -> None:
    files = {file.stem for file in (ROOT / "cli" / "commands").glob("*.py")} - {"__init__"}
    listed = [module.__name__.rpartition(".")[2] for module in MODULES]
    assert sorted(listed) == sorted(files)
    assert tuple(listed) == NAMES, "each file has one command, with the name of the file"


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_file_has_one_command(module: Any) -> None:
    (command,) = module.app.registered_commands
    assert command.callback.__module__ == module.__name__
    assert module.app.registered_groups == []


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_help_with_examples(name: str) -> None:
    result = etl(name, "--help")
    assert result.exit_code == 0
    _, _, examples = result.stdout.partition("\n  Examples:\n")
    lines = [line.strip() for line in examples.splitlines()]
    assert lines[0].startswith(f"etl {name}")
    for line in lines:
        program, *words = shlex.split(line.partition(" > ")[0])
        if program == "etl":
            command = get_command(app).commands[words[0]]
            command.make_context(words[0], words[1:])  # raises a UsageError on unknown options


def test_defaults_are_those_of_the_library() -> None:
    defaults = {
        (name, option.name): option.default() if callable(option.default) else option.default
        for name, command in get_command(app).commands.items()
        for option in command.params
    }
    assert defaults["run", "time_limit"] == options.keyword_default(run, "time_limit")
    assert defaults["certificates", "days"] == options.keyword_default(make_certificates, "days")
    assert defaults["duplicates", "top"] == options.keyword_default(duplicates, "top")
    assert defaults["vacuum", "retain"] == f"{RETAIN.days}d"
    target_bytes = options.keyword_default(optimize, "target_bytes")
    assert defaults["optimize", "target_mb"] << 20 == target_bytes
    assert defaults["replay", "seed"] == options.keyword_default(TokenDataset, "seed")
    assert defaults["replay", "step"] == options.keyword_default(replay, "step")


def test_etl_submit_has_the_options_of_etl_run() -> None:
    of_run, of_submit = (
        {option.name: option for option in get_command(app).commands[name].params}
        for name in ("run", "submit")
    )
    assert [*of_submit] == [name for name in of_run if name not in NOT_OF_SUBMIT]
    assert {*NOT_OF_SUBMIT} <= {*of_run}
    cluster, of_this_machine = of_submit.pop("cluster"), of_run["cluster"]
    assert cluster.opts == of_this_machine.opts
    assert (cluster.required, of_this_machine.required) == (True, False)
    for name, option in of_submit.items():
        facts_of_both = [
            vars(each) | {"type_descriptor": each.type_descriptor.annotation}
            for each in (option, of_run[name])
        ]
        assert facts_of_both[0] == facts_of_both[1]


def test_a_run_prints_its_report_to_stdout_and_the_rest_to_stderr(
    recipe_file: Path, tmp_path: Path
) -> None:
    process = start("run", recipe_file, "--workers", 1, "--json")
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 3, stderr
    report = json.loads(stdout)
    assert report["rows"] == 40
    assert report["rows"] == report["kept"] + sum(report["rejected"].values())
    assert [Path(note["source"]).name for note in report["quarantined"]] == ["broken.parquet"]
    lines = stderr.splitlines()
    assert any(line.startswith("dashboard  http://") for line in lines)
    assert any(line.startswith("documents   2/2 splits") for line in lines)
    assert any(line.startswith("quarantined documents file://") for line in lines)
    (tmp_path / "crawl" / "broken.parquet").unlink()
    again = etl("run", recipe_file)  # nothing to do: no cluster is started
    assert again.exit_code == 0
    assert again.stderr == "input      listing the files\n"
    assert again.stdout.startswith("nothing to do")
    assert "rows        0\n" in again.stdout
    assert "tokens      version 1\n" in again.stdout


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_says_how_to_continue(recipe_file: Path, number: signal.Signals) -> None:
    process = start("run", recipe_file, "--workers", 1)
    assert process.stderr is not None
    while not process.stderr.readline().startswith("dashboard"):
        pass
    process.send_signal(number)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 128 + number, stderr
    assert "run the same command to continue" in stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("runn",), "Did you mean 'run'?"),
        (("run", "demo", "--lak", "x"), "--lake"),
        (("trace", "lake"), "give --id ID, or --source URI and --row N"),
        (("trace", "lake", "--id", "x", "--row", "1"), "give --id ID, or --source URI and --row N"),
        (("show", "lake/tokens", "--version", "1", "--timestamp", "2026-01-01"), "not both"),
        (("recipes", "dem"), "unknown recipe 'dem'; choose from c4, demo"),
        (("vacuum", "lake", "--retain", "7"), "'7' is not a valid duration"),
        (("replay", "lake"), "give either --state FILE or --seq-len N"),
        (("replay", "a=x", "b=y", "--seq-len", "8"), "a mixture needs --state FILE"),
        (("tune", "lake"), "give --set KEY=VALUE, --sweep KEY=A,B,C or --similarity A,B,C"),
        (("run", "demo", "--limit", "5", "--share", "1%"), "give --limit or --share, not both"),
        (("submit", "demo", "--cluster", "k8s:c", "--limit", "5", "--share", "1%"), "not both"),
        (("run", "demo", "--share", "some"), "'some' is not a share, such as 1%"),
        (("release", "lake", "v1", "--version", "1", "--remove"), "not both"),
    ],
)
def test_a_wrong_option_or_argument_exits_with_2(words: tuple[str, ...], message: str) -> None:
    result = etl(*words)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr


def test_an_error_is_printed_with_its_hint_and_without_a_traceback(tmp_path: Path) -> None:
    result = etl("history", tmp_path / "missing")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith(f"error: file://{tmp_path}/missing: no Delta table at this URL")
    assert "\n  hint: " in result.stderr
    assert "Traceback" not in result.stderr
    debug = etl("--debug", "history", tmp_path / "missing")
    assert type(debug.exception).__name__ == "TableError"


_SOURCE = "source: {path: crawl, columns: {text: body}}"


@pytest.mark.parametrize(
    ("recipe", "where", "hint"),
    [
        (f"name: x\n{_SOURCE}\nstage: [c4]", "web.yaml:3: unknown key 'stage'", "`stages:`"),
        (f"name: x\n{_SOURCE}", "'stages' is missing", "`- `"),
        (f"name: x\n{_SOURCE}\nstages: {{c4: }}", "stages must be a list", "`- `"),
        ("name: x\nstages: []", "'source' is missing", "`source: ...`"),
        ("name: x\nsource: 5\nstages: []", "must be a mapping", "`source: {path: ...}`"),
        (f"name: x\n{_SOURCE}\nstages: [language: de]", "must be a list", "`keep: [de]`"),
        (f"name: x\n{_SOURCE}\nstages: [sample: 10%]", "valid number, not '10%'", "write 0.1"),
        (f"name: x\n{_SOURCE}\nstages: [where: 'lang && b']", "contains '&'", "write AND"),
        (f"name: x\n{_SOURCE}\nstages:\n\t- c4", "invalid YAML", "indent with spaces"),
        (f"name: x\n{_SOURCE}\nstages: [tokenize: gpt2]", "does not exist", "hf download"),
        ("name: x\nsource: {path: ftp://a/b}\nstages: []", "no filesystem for ftp", "s3://"),
    ],
)
def test_a_mistake_in_a_recipe_has_a_hint(
    recipe: str, where: str, hint: str, recipe_file: Path
) -> None:
    recipe_file.write_text(recipe)
    result = etl("plan", recipe_file, "--lake", recipe_file.parent / "lake")
    assert result.exit_code == 1
    assert where in result.stderr
    assert hint in result.stderr
    assert result.stdout == ""


def test_a_shipped_recipe_without_a_source_names_the_option(tmp_path: Path) -> None:
    assert "--source URL" in etl("run", "fineweb", "--lake", tmp_path).stderr
    result = etl("run", "pretokenize", "--lake", tmp_path, "--source", tmp_path)
    assert "--set tokenize.tokenizer=FILE" in result.stderr


def test_a_folder_is_not_a_recipe(tmp_path: Path) -> None:
    assert "`etl init --source URL`" in etl("run", tmp_path).stderr


def test_a_lake_for_a_table_and_a_table_for_a_lake_are_named(made: Recipe) -> None:
    lake, table = str(made.lake), made.table_url("documents")
    assert f"{table}, " in etl("history", lake).stderr
    assert "did you mean 'tokens'?" in etl("show", f"{lake}/token").stderr
    for command in ("report", "sample", "losses"):
        result = etl(command, table)
        assert result.exit_code == 1
        assert f"table of a lake: give {table.removesuffix('/documents')}\n" in result.stderr
    assert etl("losses", f"{lake}-2").exit_code == 1
    assert "this is a recipe" in etl("report", "web.yaml").stderr


def test_missing_credentials_name_their_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    result = etl("plan", "pretokenize", "--source", "s3://a-bucket/*.parquet", "--lake", tmp_path)
    assert result.exit_code == 1
    result = etl("report", "s3://a-bucket/lake")
    assert "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in result.stderr


def test_plan_takes_the_options_and_the_environment(recipe_file: Path, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "other.jsonl", records(0, 5))
    plain = facts("plan", recipe_file)
    assert plain["lake"] == str(tmp_path / "lake")
    assert plain["splits"]["to_read"] == 2
    assert plain["begin"] == ["documents", "texts", "duplicates", "tokens"]
    other = facts(
        "plan", recipe_file, "--source", tmp_path / "other.jsonl", "--lake", tmp_path / "x"
    )
    assert other["lake"] == str(tmp_path / "x")
    assert other["source"] == [str(tmp_path / "other.jsonl")]
    settings = {"TOKENLAKE_SET": "seed=3 gopher_quality.min_words=7"}
    changed = facts("plan", recipe_file, env=settings)
    assert changed["fingerprints"] != plain["fingerprints"]
    same = facts("plan", recipe_file, "--set", "seed=3", "--set", "gopher_quality.min_words=7")
    assert same["fingerprints"] == changed["fingerprints"]
    urls = {
        "TOKENLAKE_LAKE": str(tmp_path / "x"),
        "TOKENLAKE_SOURCE": str(tmp_path / "other.jsonl"),
    }
    assert facts("plan", recipe_file, env=urls) == other
    assert "splits      2 to read" in etl("plan", recipe_file).stdout


@pytest.mark.local_only  # it takes too long in an object store, and is left out
def test_plan_measures_how_evenly_the_tokens_are_read_without_torch(
    lake: Recipe, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    file = tmp_path / "again.yaml"
    file.write_text(lake.model_dump_json(exclude_unset=True))
    even = facts("plan", file)["evenness"]
    assert even["sources"] >= 1
    assert even["batches"] >= 2
    line = next(row for row in etl("plan", file).stdout.splitlines() if row.startswith("evenness"))
    assert f"{even['document_ratio']:.2f} times the variance of independent documents" in line
    assert facts("plan", file, "--lake", tmp_path / "new")["evenness"] is None


def test_init_writes_a_recipe_that_plan_accepts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "raw").mkdir()
    write_parquet(tmp_path / "raw" / "a.parquet", records(0, 40))
    result = etl("init", "--source", "raw")
    assert result.exit_code == 0, result.output
    assert "columns     text: body, id: doc_id, url: link" in result.stdout
    assert "run `etl plan recipe.yaml`" in result.stdout
    assert facts("plan", "recipe.yaml")["sample"]["documents"] == 40
    again = etl("init", "--source", "raw")
    assert (again.exit_code, again.stdout) == (1, "")
    assert "recipe.yaml: the file exists" in again.stderr
    assert etl("init", "-", "--source", "raw").stdout == (tmp_path / "recipe.yaml").read_text()
    (tmp_path / "recipes").mkdir()
    assert etl("init", "recipes/web.yaml", "--source", "raw").exit_code == 0
    assert facts("plan", "recipes/web.yaml")["lake"] == str(tmp_path / "recipes" / "lakes" / "raw")


def test_init_says_what_it_doubts(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "id;day\n" + "".join(f"{n};2026-01-{n}\n" for n in range(10, 29))
    )
    result = etl("init", tmp_path / "a.yaml", "--source", tmp_path / "a.csv")
    assert "warning: column 'day' holds dates or numbers, not prose" in result.stderr
    assert "kept        0 of 19 distinct texts" in result.stdout
    shown = facts("init", tmp_path / "b.yaml", "--source", tmp_path / "a.csv")
    assert (shown["source"]["delimiter"], shown["judged"], shown["kept"]) == (";", 19, 0)
    assert shown["doubts"][0].startswith("column 'day' holds dates or numbers")


@pytest.mark.parametrize(
    ("content", "what"),
    [("", "the files have no records"), ("{", "no text in the first 1 record: ")],
)
def test_init_refuses_files_without_a_text(content: str, what: str, tmp_path: Path) -> None:
    (tmp_path / "raw.jsonl").write_text(content)
    result = etl("init", tmp_path / "web.yaml", "--source", tmp_path / "raw.jsonl")
    assert (result.exit_code, result.stdout) == (1, "")
    assert what in result.stderr
    assert not (tmp_path / "web.yaml").exists()


def test_init_and_plan_check_the_tokenizer_first(recipe_file: Path, tmp_path: Path) -> None:
    source = tmp_path / "crawl" / "a.parquet"
    words = ("init", tmp_path / "new.yaml", "--source", source, "--tokenizer", recipe_file)
    for result in (
        etl(*words),
        etl("plan", recipe_file, "--set", f"tokenize.tokenizer={recipe_file}"),
    ):
        assert (result.exit_code, result.stdout) == (1, "")
        assert "not a tokenizer.json" in result.stderr
    assert not (tmp_path / "new.yaml").exists()


def test_a_table_of_another_program_is_not_a_lake(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "lake" / "documents", pa.table({"text": ["a"]}))
    for command in ("report", "sample", "status"):
        result = etl(command, tmp_path / "lake")
        assert (result.exit_code, result.stdout) == (1, "")
        assert "not a table of Tokenlake: it has no column 'row'" in result.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full of Linux")
def test_a_full_disk_is_not_a_damaged_file() -> None:
    with Path("/dev/full").open("w") as full:
        process = subprocess.run(
            [sys.executable, "-c", "from etl.cli import main; main()", "stages"],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert process.returncode == 1
    assert process.stderr.startswith("error: No space left on device\n  hint: ")


def test_plan_shows_sampled_verdicts_and_the_tokenizer(recipe_file: Path) -> None:
    shown = etl("plan", recipe_file).stdout
    assert "sample      32 documents of 1 file" in shown
    assert "broken.parquet" in shown.partition("warning")[2]
    assert "vocabulary  " in shown
    assert "sample " not in etl("plan", recipe_file, "--no-sample").stdout
    mistyped = etl("plan", recipe_file, "--set", "source.columns.text=boddy")
    assert mistyped.exit_code == 1
    assert "did you mean 'body'?" in mistyped.stderr


def test_the_tokenizer_of_the_sample_is_a_warning(recipe_file: Path) -> None:
    source = ("--source", recipe_file.parent / "crawl", "--set", "source.columns.text=body")
    lake = ("--lake", recipe_file.parent / "lake")
    assert "--set tokenize.tokenizer=FILE" in etl("plan", "gopher", *source, *lake).stderr
    assert etl("plan", "demo", *lake).stderr == ""


def test_a_trial_reads_a_part_and_writes_beside_the_lake(recipe_file: Path) -> None:
    (recipe_file.parent / "crawl" / "broken.parquet").unlink()
    lake = recipe_file.parent / "lake"
    for part, most in ((("--limit", 5), 5), (("--share", "20%"), 39)):
        result = etl("run", recipe_file, *part, "--workers", 1, "--json")
        assert result.exit_code == 0, result.output
        assert f"trial      {lake}-trial" in result.stderr
        assert 0 < json.loads(result.stdout)["rows"] <= most
    assert not lake.exists()
    other = etl("plan", recipe_file, "--lake", f"{lake}-trial")
    assert "created by a different recipe" in other.stderr


@pytest.mark.local_only  # S3 has no links
def test_a_trial_never_replaces_a_lake(made: Recipe, tmp_path: Path) -> None:
    file = tmp_path / "again.yaml"
    file.write_text(made.model_dump_json(exclude_unset=True))
    (tmp_path / "lake-trial").symlink_to(storage.local_path(storage.normalize(str(made.lake))))
    result = etl("run", file, "--lake", tmp_path / "lake", "--limit", 5)
    assert result.exit_code == 1
    assert "is not that of a trial" in result.stderr


def test_stages_are_listed_and_printed() -> None:
    listed = facts("stages")
    assert [stage["kind"] for stage in listed][-1] == "tokenize"
    text = etl("stages", "language").stdout
    assert "min_score  (number, from 0 to 1, or null; default 0.65)" in text
    assert "- language: {keep: [de, en]" in text
    assert "did you mean 'language'?" in etl("stages", "langage").stderr


def test_recipes_are_listed_and_printed() -> None:
    listed = facts("recipes")
    assert "demo" in {recipe["name"] for recipe in listed}
    assert all(recipe["about"] for recipe in listed)
    text = etl("recipes", "demo").stdout
    assert yaml.safe_load(text)["name"] == "demo"


def test_a_recipe_is_written_with_the_sample(tmp_path: Path) -> None:
    written = facts("recipes", "demo", "--to", str(tmp_path / "new"))["files"]
    assert str(tmp_path / "new" / "sample" / "handbook-nl.jsonl") in written
    recipe = Recipe.load(tmp_path / "new" / "demo.yaml")
    assert all(path.startswith(f"{tmp_path}/new/sample/") for path in recipe.source.paths)
    (tmp_path / "new" / "demo.yaml").write_text("name: mine\n")
    result = etl("recipes", "demo", "--to", str(tmp_path / "new"))
    assert result.exit_code == 1
    assert "demo.yaml exists, and differs from the shipped file" in result.stderr
    assert (tmp_path / "new" / "demo.yaml").read_text() == "name: mine\n"


def test_history_lists_versions(made: Recipe) -> None:
    versions = facts("history", made.table_url("documents"))
    assert [version["version"] for version in versions] == list(range(len(versions)))[::-1]
    assert versions[0]["lineage"]["recipe"] == "web"
    lines = etl("history", made.table_url("documents")).stdout.splitlines()
    assert len(lines) == len(versions) + 1
    assert "create table" in lines[-1]


def test_show_prints_schema_counts_and_rows(made: Recipe) -> None:
    url = made.table_url("tokens")
    shown = facts("show", url, "--limit", 2)
    assert [column["name"] for column in shown["schema"]][:3] == ["id", "source", "row"]
    assert len(shown["sample"]) == 2
    assert shown["rows"] == Table.open(url).dataset().count_rows()
    text = etl("show", url, "--limit", 1, "--columns", "id,tokens").stdout
    assert " in all]" in text, "long lists are shortened"
    first = facts("show", url, "--version", 0)
    assert (first["version"], first["rows"], first["sample"]) == (0, 0, [])
    assert facts("show", url, "--timestamp", "2100-01-01")["version"] == shown["version"]
    assert etl("show", url, "--timestamp", "yesterday").exit_code == 2
    assert etl("show", url, "--columns", "txt").exit_code == 1
    assert facts("show", made.table_url("documents"), "--limit", 1)["sample"][0]["content_hash"]


def test_diff_prints_what_changed(made: Recipe) -> None:
    difference = facts("diff", made.table_url("documents"), 0, 1)
    assert difference["rows_added"] > 0
    text = etl("diff", made.table_url("documents"), 0, 1).stdout
    assert f"+{difference['rows_added']:,}" in text
    assert "gopher_quality.short" in text
    assert f"input added: {storage.normalize(made.source.path)}/" in text


def test_lineage_prints_tree_json_and_events(made: Recipe) -> None:
    url = made.table_url("tokens")
    assert "└─ " in etl("lineage", url).stdout
    assert {table["name"] for table in facts("lineage", url)["tables"]} == {
        "documents",
        "texts",
        "duplicates",
    }
    events = [json.loads(line) for line in etl("lineage", url, "--openlineage").stdout.splitlines()]
    assert {event["eventType"] for event in events} == {"START", "COMPLETE"}


def test_trace_prints_what_happened_to_a_document(made: Recipe) -> None:
    (traced,) = facts("trace", made.lake, "--id", "doc-00003")
    assert traced["reason"] == "gopher_quality.short"
    assert "rejected by gopher_quality.short" in etl("trace", made.lake, "--id", "doc-00003").stdout
    kept = etl("trace", made.lake, "--id", "doc-00002").stdout
    assert "  tokens " in kept
    assert facts("trace", "--id", "doc-00003", env={"TOKENLAKE_LAKE": str(made.lake)}) == [traced]
    duplicate = facts("show", made.table_url("duplicates"), "--limit", 1)["sample"][0]
    text = etl(
        "trace", made.lake, "--source", duplicate["source"], "--row", duplicate["row"]
    ).stdout
    assert f"duplicate of {storage.normalize(made.source.path)}/" in text


@pytest.mark.local_only
@pytest.mark.slow
def test_failed_checkpoints_are_reported_once_per_table(
    recipe_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etl.delta.checkpoint._MAX_ENTRIES", 1)
    (recipe_file.parent / "crawl" / "broken.parquet").unlink()
    for name in ("documents", "keys"):
        for number in range(9):  # no file can have these names
            log = recipe_file.parent / "lake" / name / "_delta_log"
            (log / f"{number:020}.checkpoint.parquet").mkdir(parents=True)
    result = etl("run", recipe_file)
    assert result.exit_code == 0, result.output
    warnings = [line for line in result.stderr.splitlines() if line.startswith("warning: ")]
    assert [line.partition(" was written: ")[0] for line in warnings] == [
        "warning: no checkpoint of documents",
        "warning: no checkpoint of keys",
    ]
    assert all("cannot be written" in line for line in warnings)


def test_verify_exits_with_1_for_problems(lake: Recipe) -> None:
    assert facts("verify", lake.lake) == []
    assert etl("verify", lake.lake).stdout == "no problems found\n"
    next((at(lake.lake) / "tokens").glob("*.parquet")).unlink()
    result = etl("verify", lake.lake)
    assert result.exit_code == 1
    assert result.stdout.startswith("tokens/")
    assert "the file is missing" in result.stdout


def test_repair_drops_files_only_with_yes(lake: Recipe) -> None:
    assert etl("repair", lake.lake).stdout == "no problems found\n"
    next((at(lake.lake) / "tokens").glob("*.parquet")).unlink()
    result = etl("repair", lake.lake)
    assert result.exit_code == 0
    assert "would drop 1 file of tokens\n" in result.stdout
    assert result.stdout.endswith("--yes does this; `etl run` then rebuilds what was dropped\n")
    assert etl("verify", lake.lake).exit_code == 1
    result = etl("repair", lake.lake, "--yes")
    assert "dropped 1 file of tokens\n" in result.stdout
    assert result.stdout.endswith("`etl run` rebuilds what was dropped\n")
    assert etl("verify", lake.lake).exit_code == 0


@pytest.mark.local_only
def test_a_damaged_log_is_restored_only_with_yes(lake: Recipe) -> None:
    entry = max((at(lake.lake) / "tokens" / "_delta_log").glob("*.json"))
    entry.write_bytes(b"")
    result = etl("history", f"{lake.lake}/tokens")
    assert result.exit_code == 1
    assert f"hint: `etl repair {storage.normalize(lake.lake)} --yes` restores" in result.stderr
    result = etl("repair", lake.lake)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-2:] == [
        "would restore the log of tokens",
        "--yes does this; `etl run` then rebuilds what was dropped",
    ]
    assert entry.exists()
    result = etl("repair", lake.lake, "--yes")
    assert "\nrestored the log of tokens\n" in result.stdout
    assert etl("history", f"{lake.lake}/tokens").exit_code == 0


def test_vacuum_deletes_files_only_with_yes(lake: Recipe) -> None:
    assert etl("vacuum", lake.lake, "--retain", "4w").stdout.splitlines()[1:] == [
        "would delete 0 files, 0 bytes; --yes deletes them"
    ]
    result = etl("vacuum", lake.lake, "--yes")
    assert result.stdout.startswith("files not needed since 20")
    assert result.stdout.endswith("; releases kept: none\ndeleted 0 files, 0 bytes\n")
    assert facts("vacuum", lake.lake)["deleted"] is False


def test_report_counts_the_lake(made: Recipe) -> None:
    counts = facts("report", made.lake)
    assert counts["rows"] == counts["kept"] + sum(counts["rejected"].values())
    assert {table["fingerprint"] for table in counts["tables"]} == {made.fingerprint()}
    text = etl("report", made.lake).stdout
    assert f"kept        {counts['kept']:,} (" in text
    assert "quarantined documents" in text


def test_the_committed_schema_is_current() -> None:
    printed = etl("schema").stdout
    assert json.loads(printed) == json_schema()
    message = "run: etl schema > schemas/recipe.schema.json"
    assert (ROOT / "schemas" / "recipe.schema.json").read_text("utf-8") == printed, message


def progress(done: int, total: int = 3) -> Progress:
    return Progress("documents", done, total, rows=10, kept=8, text_bytes=10, seconds=1.0)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_one_line_on_a_terminal() -> None:
    stream = Terminal()
    with PrintListener(stream) as line:
        line.progress(progress(1))
        line.note("a note")
        line.progress(progress(3))
    assert stream.getvalue().count("\r") == 2
    written = stream.getvalue().replace("\x1b[K", "")
    assert [text.split("\r")[-1][:13] for text in written.split("\n")] == [
        "documents   1", "a note", "documents   3", "",
    ]  # fmt: skip


def test_progress_is_a_line_every_few_seconds_elsewhere() -> None:
    stream = io.StringIO()
    with PrintListener(stream) as line:
        for done in (1, 2, 3):
            line.progress(progress(done))
    first, last = stream.getvalue().splitlines()
    assert "1/3 splits" in first
    assert "3/3 splits" in last
    assert "\r" not in stream.getvalue()


def test_a_status_does_not_stay_on_a_terminal() -> None:
    stream = Terminal()
    with PrintListener(stream) as line:
        line.status("workers    starting")
        line.note("a note")
        line.status("workers    starting")
    assert [text.split("\r")[-1] for text in stream.getvalue().split("\n")] == [
        "\x1b[Ka note", "\x1b[K"
    ]  # fmt: skip


def test_units_that_fail_with_the_same_error_are_one_line() -> None:
    notes = [
        Quarantined("documents", f"file:///{name}", "", error, "")
        for name, error in [
            ("a", "file:///a row 1: KeyError: 'x'"),
            ("b", "damaged"),
            ("c", "file:///c row 22: KeyError: 'y'"),
        ]
    ]
    stream = io.StringIO()
    with PrintListener(stream) as lines:
        show_quarantined(lines, notes)
    assert stream.getvalue().splitlines() == [
        "quarantined documents file:///a: file:///a row 1: KeyError: 'x' (and 1 more like this)",
        "quarantined documents file:///b: damaged",
    ]
