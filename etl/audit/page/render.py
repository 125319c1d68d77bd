"""Lay out the facts of a page as one HTML file: templates, style and script are beside this module.

Charts are inline SVG. Bokeh, which Dask's dashboard uses, would add 1.3 MB of script, draw on canvases that
screen readers cannot read, and need more script to follow a dark theme.
"""

import base64
import hashlib
import re
from datetime import UTC, datetime
from importlib.resources import files
from typing import Final

from jinja2 import Template
from markupsafe import Markup, escape

from etl.audit.lake_difference import LakeDifference, title_of
from etl.audit.page.chart import chart, number
from etl.audit.page.facts import PageFacts, page_facts
from etl.audit.page.grids import grids
from etl.html.environment import environment
from etl.html.grid import Grid, percent
from etl.html.visible import visible
from etl.plural import many

_TEMPLATES: Final = files("etl.audit.page") / "templates"


def lake_page(lake: str, *, version: int | str | None = None, costs: Grid | None = None) -> str:
    """Return the page of a lake at a version, as in ``etl.report``; ``costs`` is the table of its costs.

    Raises TableError if the lake has no documents, or if the version does not exist.
    """
    return render(page_facts(lake, version=version), costs=costs)


def render(facts: PageFacts, *, costs: Grid | None = None) -> str:
    """Return the page as HTML. Everything is escaped; the page may load nothing and run only its script."""
    script = (_TEMPLATES / "page.js").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _template("page.html").render(
        facts=facts,
        report=facts.report,
        name=facts.report.lake.rstrip("/").rpartition("/")[2],
        costs=costs,
        charts={signal.name: chart(signal) for signal in facts.signals},
        length_chart=chart(facts.lengths) if facts.lengths is not None else None,
        grids=grids(facts),
        made=_now(),
        script=Markup(script),  # noqa: S704 - the package's own file
        style=_style(),
        script_digest=digest,
    )


def render_difference(difference: LakeDifference) -> str:
    """Return the difference between two lakes as a page of HTML, which loads nothing and runs no script."""
    return _template("difference.html").render(
        difference=difference,
        before=title_of(difference.old),
        after=title_of(difference.new),
        made=_now(),
        style=_style(),
    )


def _template(name: str) -> Template:
    templates = environment("etl.audit.page")
    templates.filters |= {
        "name": _breakable,
        "number": number,
        "count": lambda value: f"{round(value):,}",
        "percent": percent,
        "estimate": lambda value: "–" if value is None else f"~{value:,}",
        "many": lambda value, noun: many(round(value), noun),
        "signed": lambda value: f"{round(value):+,}",
    }
    return templates.get_template(name)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _style() -> Markup:
    return Markup((_TEMPLATES / "page.css").read_text("utf-8"))  # noqa: S704 - the package's own file


def _breakable(name: str) -> Markup:
    """Return a name with places at which a line may break.

    >>> _breakable("a.b_c<")
    Markup('a.<wbr>b_<wbr>c&lt;')
    """
    shown = str(escape(visible(name, 100)))
    return Markup(re.sub(r"([._])", r"\1<wbr>", shown))  # noqa: S704 - escaped
