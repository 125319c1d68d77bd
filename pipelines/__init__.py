"""The shipped recipes as YAML files, the sample data of the demo, and two example programs.

The programs are ``tour.py``, which ``make demo`` runs, and ``train_ddp.py``, which trains the model in
``gpt.py``.

>>> list_recipes()
['c4', 'demo', 'fineweb', 'gopher', 'multilingual', 'pretokenize']
>>> find_recipe("demo").name
'demo.yaml'
"""

import filecmp
import shutil
from collections.abc import Iterator
from pathlib import Path

from etl.errors import RecipeError

FOLDER = Path(__file__).parent
"""The folder of the shipped recipes and of the sample."""


def list_recipes() -> list[str]:
    """Return the names of the shipped recipes, sorted."""
    return sorted(file.stem for file in FOLDER.glob("*.yaml"))


def find_recipe(name: str) -> Path:
    """Return the file of a shipped recipe; raises FileNotFoundError for an unknown name."""
    if name not in list_recipes():
        raise FileNotFoundError(
            f"no shipped recipe is named {name!r}; the shipped recipes are {', '.join(list_recipes())}"
        )
    return FOLDER / f"{name}.yaml"


def write_recipe(name: str, folder: Path) -> list[Path]:
    """Copy a shipped recipe and the folder ``sample``, which it reads or may read, and return the files.

    Raises RecipeError if a file exists with other content, before any is written.
    """
    copies = {source: folder / source.relative_to(FOLDER) for source in _files_of(name)}
    for source, copy in copies.items():
        if copy.exists() and not filecmp.cmp(source, copy, shallow=False):
            raise RecipeError(
                f"{copy} exists, and differs from the shipped file",
                hint="write to another folder, or rename the file",
            )
    for source, copy in copies.items():
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)
    return list(copies.values())


def _files_of(name: str) -> Iterator[Path]:
    yield find_recipe(name)
    yield from sorted(file for file in (FOLDER / "sample").iterdir() if file.suffix != ".py")
