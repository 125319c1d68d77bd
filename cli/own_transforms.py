"""Load the token transforms of the user that a replay needs."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from etl.errors import LoaderError

if TYPE_CHECKING:
    from etl.loader.fetch.token_transform import TokenTransform

Transforms = Annotated[
    list[str] | None,
    typer.Option(
        "--transform",
        metavar="MODULE:NAME",
        help="A token transform of your own that the state names: an object in a Python module of this "
        "folder; repeatable.",
    ),
]


def load_transforms(names: Sequence[str]) -> "list[TokenTransform]":
    """Return the transforms with some names, each ``module:name``, from modules of the current folder.

    Raises RecipeError if a module cannot be imported, LoaderError if it has no such transform.
    """
    from etl.stages.user_code import find_module

    transforms: list[Any] = []
    for name in names:
        module, _, attribute = name.partition(":")
        loaded = find_module(module, str(Path.cwd()), ()).load()
        transform = getattr(loaded, attribute, None)
        missing = [
            n for n in ("settings", "check", "rate", "num_added") if not hasattr(transform, n)
        ]
        if missing or not callable(transform) or isinstance(transform, type):
            raise LoaderError(
                f"{attribute or 'it'} of the module {module} is not a token transform",
                where=f"--transform {name}",
                hint="name an object, such as mask:MASK for MASK = Mask(token=5) in mask.py",
            )
        transforms.append(transform)
    return transforms
