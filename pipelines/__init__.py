"""The shipped recipes as YAML files, the sample data of the demo, and two example programs.

The programs are ``tour.py``, which ``make demo`` runs, and ``train_ddp.py``, which trains the model in
``gpt.py``.

>>> list_recipes()
['c4', 'demo', 'fineweb', 'gopher', 'multilingual', 'pretokenize']
>>> find_recipe("demo").name
'demo.yaml'
"""

from pathlib import Path

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
