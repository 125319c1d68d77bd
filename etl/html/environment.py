"""The Jinja environment of all templates: it escapes every value, and makes hidden characters visible."""

import sys

from jinja2 import Environment, PackageLoader, StrictUndefined

from etl.html.visible import visible


def environment(package: str) -> Environment:
    """Return the environment for the templates of a package, with the filter ``visible``."""
    made = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    made.filters["visible"] = visible
    return made


def _finalize(value: object) -> object:
    """Return a value to print; text that is HTML already was made by a filter or a macro."""
    return visible(value, sys.maxsize) if type(value) is str else value
