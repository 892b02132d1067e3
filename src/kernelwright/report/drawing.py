"""The templates: one environment that escapes everything, with the units as filters."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from kernelwright.core import units
from kernelwright.report import format, optimization

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

_BEFORE_UNIT = re.compile(r"(?<=\d) (?=%|[KMGTP]?B\b|[KMGTP]?FLOP|[umn]?s\b|[KMG]iB\b)|(?<=,) (?=[\d.,]+\])")


@cache
def jinja_environment() -> Environment:
    """Made at the first page, so that the terminal never pays for Jinja."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("kernelwright.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    made.filters.update(
        time=units.time_text,
        bytes=units.bytes_text,
        bandwidth=units.bandwidth_text,
        rate=units.rate_text,
        count=units.count_text,
        percent=units.percent_text,
        times=format.factor_text,
        plain=format.sanitize_line,
        bound=join_units,
        dotted=breakable_path,
        error=format.error_text,
    )
    made.globals.update(format=format, optimization=optimization)
    return made


def join_units(text: str) -> str:
    """The text with every number bound to its unit, so that a line never breaks between them."""
    return _BEFORE_UNIT.sub("\u00a0", text)


def breakable_path(path: str) -> Markup:
    """A dotted path that may break behind its dots."""
    from markupsafe import Markup, escape

    return Markup(".<wbr>").join(escape(part) for part in path.split("."))


def render_template(template: str, **values: Any) -> Markup:
    """One template with its values; what comes back is markup, already escaped."""
    from markupsafe import Markup

    return Markup(jinja_environment().get_template(template).render(**values))
