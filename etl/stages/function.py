"""Functions of Python as filters: name a function of a module, and call one of this process."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from pydantic import PrivateAttr

from etl.stages.filters.python import Python


class Function(Python):
    """Keep documents for which a function of this process returns true, as the stage ``python`` does.

    A recipe cannot have it: its fingerprint covers code that is stored in files.
    """

    _function: Callable[[Any], Any] = PrivateAttr()

    @classmethod
    def of(cls, function: Callable[[Any], Any], **settings: Any) -> Self:
        """Return the stage for a function, with other settings of ``python``; raise RecipeError if invalid.

        >>> Function.of(lambda document: True, per="document").call
        'etl.stages.function:lambda'
        """
        name = getattr(function, "__name__", type(function).__name__)
        label = re.sub(r"\W", "", name)
        stage = cls(**{**settings, "call": f"{function.__module__}:{label}"})
        stage._function = function
        return stage

    def check(self) -> None:
        """Do nothing: the function is there."""

    @contextmanager
    def loaded(self) -> Iterator[Callable[[Any], Any]]:
        """Yield the function."""
        yield self._function
