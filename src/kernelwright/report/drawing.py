"""The Jinja environment of the templates, with autoescaping and the unit formats as filters."""

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
    """Return the environment, created on first use so that terminal output does not import Jinja."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("kernelwright.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters.update(
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
    environment.globals.update(format=format, optimization=optimization)
    return environment


def join_units(text: str) -> str:
    """Join every number to its unit with a no-break space."""
    return _BEFORE_UNIT.sub("\u00a0", text)


def breakable_path(path: str) -> Markup:
    """Return a dotted path that may break after its dots."""
    from markupsafe import Markup, escape

    return Markup(".<wbr>").join(escape(part) for part in path.split("."))


def render_template(template: str, **values: Any) -> Markup:
    """Render a template to escaped markup."""
    from markupsafe import Markup

    return Markup(jinja_environment().get_template(template).render(**values))
