"""Builds HTML from texts that nobody vouches for: every text is escaped."""

import base64
import hashlib
import html
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any


class Html(str):
    """Text that is HTML already."""


def escape(text: object) -> Html:
    """Return a text as HTML; `Html` stays as it is."""
    return text if isinstance(text, Html) else Html(html.escape(str(text)))


def element(name: str, *content: object, **attributes: object) -> Html:
    """Return an element with escaped attributes and content.

    Args:
        name: Name of the element.
        *content: Texts and elements.
        **attributes: Attributes; `class_` is class, `data_env` is data-env. None leaves one out.
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{given}>{''.join(map(escape, content))}</{name}>")


def table(
    caption: str, heading: Sequence[str], rows: Iterable[Sequence[object]], text_columns: int = 1
) -> Html:
    """Return a table that scrolls on narrow screens; the first cell of a row is its heading.

    Args:
        caption: What the table shows.
        heading: Titles of the columns.
        rows: Cells.
        text_columns: Number of columns, from the left, that hold texts instead of numbers.
    """

    def kind(index: int) -> str | None:
        return "number" if index >= text_columns else None

    head = [element("th", h, scope="col", class_=kind(i)) for i, h in enumerate(heading)]
    body = []
    for first, *others in rows:
        cells = [element("td", c, class_=kind(i)) for i, c in enumerate(others, 1)]
        body.append(element("tr", element("th", first, scope="row"), *cells))
    inner = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *head)),
        element("tbody", *body),
    )
    return element("div", inner, class_="scroll", tabindex=0, role="region", aria_label=caption)


def json_script(identifier: str, value: Any) -> Html:
    """Return JSON in a script element that is never run and cannot be left from within."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Html(f'<script type="application/json" id="{identifier}">{text}</script>')


def policy_hash(text: str) -> str:
    """Return the hash of a script or style for a content security policy."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def number(value: float | None, digits: int = 4) -> str:
    """Return a number for a table cell; a dash if there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def count(value: int) -> str:
    """Return a count with separators between thousands."""
    return f"{value:,}"


def percent(value: float | None) -> str:
    """Return a fraction as a percentage; a dash if there is none."""
    return "–" if value is None else f"{100 * value:.0f}%"
