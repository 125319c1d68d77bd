"""The Jinja environment of all templates: it escapes every value."""

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
    )
    made.filters["visible"] = visible
    return made
