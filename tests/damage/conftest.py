"""The lakes to damage, parts of the matrix, and the matrix of outcomes that is printed at the end.

``make damage SEED=5`` damages other places of other files; ``PART=2/8`` runs one of eight parts.
"""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from distributed import Client

from etl.job.run import run
from etl.job.shuffle import shuffle
from etl.recipe.recipe import Recipe
from tests.damage.case import Case, WrongError, copied, readers_of
from tests.damage.content import Content, Past, read_content, read_past
from tests.damage.damages import DAMAGES
from tests.damage.history import CUTTING, Lakes, make_at_once, make_lakes
from tests.damage.targets import Damaged, Targets
from tests.helpers.parts import select_part

_OUTCOMES = pytest.StashKey[dict[tuple[str, str], tuple[str, str]]]()
_LETTERS = {
    "harmless": ".",
    "unfinished": "u",
    "repaired": "R",
    "command": "C",
    "wrong": "X",
    "none": "-",
}


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_OUTCOMES] = {}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    select_part("DAMAGE_PART", config, items)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    outcomes = config.stash[_OUTCOMES]
    if not outcomes:
        return
    columns = [name for name in DAMAGES if any(damage == name for _, damage in outcomes)]
    kinds = list(dict.fromkeys(kind for kind, damage in outcomes if damage in columns))
    width = max(map(len, kinds), default=0)
    write = terminalreporter.write_line
    write(
        "\n. harmless  R repaired  C repaired by the command that is named  X wrong  - not possible"
    )
    for number, name in enumerate(columns):
        write(" " * (width + 2) + "| " * number + name)
    for kind in kinds:
        letters = [
            _LETTERS[outcomes.get((kind, name), (" ", ""))[0]] if (kind, name) in outcomes else " "
            for name in columns
        ]
        write(f"{kind:<{width}}  {' '.join(letters)}")
    for (kind, damage), (outcome, _) in outcomes.items():
        if damage not in columns:
            write(f"{kind}: {damage}: {outcome}")
    wrong = [(kind, damage, why) for (kind, damage), (o, why) in outcomes.items() if o == "wrong"]
    write(f"{len(outcomes)} cases, {len(wrong)} wrong")
    for kind, damage, why in wrong:
        write(f"{kind} | {damage} | {why}")


@pytest.fixture(scope="session")
def seed() -> int:
    return int(os.environ.get("DAMAGE_SEED") or 0)


@pytest.fixture(scope="session")
def lakes(
    client: Client, tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> Lakes:
    """The lakes to copy and damage; by the seed, nothing, paragraphs or substrings are cut from documents."""
    folder = tmp_path_factory.mktemp("lakes")
    return make_lakes(folder, client, tiny_tokenizer, cutting=CUTTING[seed % len(CUTTING)])


@pytest.fixture(scope="session")
def expected(
    lakes: Lakes, client: Client, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Content]:
    """Return a function that gives what a lake contains after a run if nothing damages it."""

    @cache
    def of(name: str) -> Content:
        if name == "at_once":
            return read_content(at_once())
        with copied(lakes, name, tmp_path_factory.mktemp(name)) as lake:
            run(lakes.recipe_of(lake), cluster=client)
            shuffle(str(lake), cluster=client)
            return read_content(lake)

    @cache
    def at_once() -> Path:
        make_at_once(lakes, client)
        return lakes.folder_of("at_once")

    return of


@pytest.fixture(scope="session")
def undamaged(lakes: Lakes) -> Callable[[str], tuple[Content, Past]]:
    """Return a function that gives the content and the past of an undamaged lake."""

    @cache
    def of(name: str) -> tuple[Content, Past]:
        return read_content(lakes.folder_of(name)), read_past(lakes.folder_of(name))

    return of


@pytest.fixture(scope="session")
def targets(lakes: Lakes, expected: Callable[[str], Content]) -> Targets:
    return Targets(lakes, lambda: expected("at_once"))


CheckCase = Callable[..., None]


@pytest.fixture
def check_case(
    lakes: Lakes,
    client: Client,
    expected: Callable[[str], Content],
    undamaged: Callable[[str], tuple[Content, Past]],
    tmp_path: Path,
    pytestconfig: pytest.Config,
) -> CheckCase:
    """Return a function that damages a copy of a lake, checks the case and notes its outcome."""
    outcomes = pytestconfig.stash[_OUTCOMES]

    def check(  # noqa: PLR0913 - how the cases differ
        kind: str,
        damage: str,
        inflict: Callable[[Damaged], bool],
        *,
        lake_name: str = "complete",
        is_quick: bool = True,
        recipe: Recipe | None = None,
        is_moved: bool = False,
    ) -> None:
        label = kind if lake_name == "complete" else f"{lake_name}: {kind}"
        with copied(lakes, lake_name, tmp_path) as lake:
            if not inflict(Damaged(lake, lake_name)):
                outcomes[label, damage] = ("none", "")
                pytest.skip("no file to damage so")
            case = Case(
                recipe or lakes.recipe_of(lake),
                client,
                lake,
                was_killed=lake_name != "complete",
                undamaged=lambda: undamaged(lake_name),
                expected=lambda: expected(lake_name),
                at_once=lambda: expected("at_once"),
                readers=readers_of(kind),
                is_moved=is_moved,
            )
            try:
                outcomes[label, damage] = (case.check(is_quick=is_quick), "")
            except WrongError as wrong:
                outcomes[label, damage] = ("wrong", str(wrong))
                pytest.fail(str(wrong), pytrace=False)

    return check
