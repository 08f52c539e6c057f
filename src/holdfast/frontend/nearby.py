"""Where in a view's text something is that Spark refused: Spark has seen the plan's expressions, not the text.

Spark names a function, or shows an expression as it prints it. The place is where the text has the most of the same
words in the same order; an approximation, but one that points at the right call.
"""

from __future__ import annotations

from sqlglot.errors import TokenError

from holdfast.errors import SqlError
from holdfast.frontend.place import Text
from holdfast.plan.expression import Faithful

_BRACKETS = {"(", ")", "`", '"'}


def placed(error: SqlError, sql: str) -> SqlError:
    """The same error with the line and column in ``sql`` of what it is about, if that can be found."""
    near = error.fields.get("near")
    offset = _offset(sql, near) if isinstance(near, str) else None
    if offset is None or "line" in error.fields:
        return error
    line, column = Text(sql, "").line_column(offset)
    return type(error)(f"{error} (line {line}, column {column})", **{**error.fields, "line": line, "column": column})


def _offset(sql: str, near: str) -> int | None:
    try:
        words = [token.text.lower() for token in Faithful().tokenize(near) if token.text not in _BRACKETS]
        tokens = [token for token in Faithful().tokenize(sql) if token.text not in _BRACKETS]
    except TokenError:
        return None
    texts = [token.text.lower() for token in tokens]

    def common(place: int) -> int:
        """How many of the words stand there, in their order, with little between them."""
        window, found = texts[place : place + 2 * len(words)], 0
        for word in words:
            if word in window:
                window, found = window[window.index(word) + 1 :], found + 1
        return found

    places = [place for place, text in enumerate(texts) if text in words]
    best = max(places, key=lambda place: (common(place), place), default=None)
    return None if best is None else tokens[best].start
