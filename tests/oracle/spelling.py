"""The same statement, spelled otherwise, as people spell SQL: `SPELLINGS`.

A spelling changes the text and never the meaning. Where a statement has nothing that can be spelled that way (no cast,
no GROUP BY), it stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise

from .data import TABLES

_PIECES = re.compile(
    r"""(?P<kept>r?'(?:[^'\\]|\\.|'')*'|"[^"]*"|`[^`]*`|/\*.*?\*/)|(?P<word>[A-Za-z_][A-Za-z_0-9]*)|(?P<other>\s+|.)""",
    re.S,
)
_COLUMNS = {name for columns in TABLES.values() for name, _ in columns}
_ENDS = {"HAVING", "ORDER", "LIMIT", "QUALIFY", "UNION", "INTERSECT", "EXCEPT", "WINDOW", "WITH"}
"""Words that end a list behind GROUP BY."""

_CALLED = "int|bigint|smallint|double|float|string|date|timestamp|boolean"
"""Types that are also functions."""


def _words(sql: str, spell: Callable[[str], str]) -> str:
    """The statement with every word spelled otherwise that is not in quotes."""
    return _PIECES.sub(lambda piece: spell(piece["word"]) if piece["word"] else piece[0], sql)


def _spaces(sql: str, space: str) -> str:
    return _PIECES.sub(lambda piece: space if piece[0].isspace() else piece[0], sql)


def _unquoted(sql: str, spell: Callable[[str], str]) -> str:
    """``spell`` applied to what stands between texts in quotes."""
    return "".join(part if place % 2 else spell(part) for place, part in enumerate(re.split("('[^']*')", sql)))


def _back_quoted(sql: str) -> str:
    """Names in back-quotes, where nothing but a column or a table can stand: behind a dot, FROM or JOIN."""
    dotted = re.compile(
        rf"((?<=[A-Za-z0-9_]\.)(?:{'|'.join(sorted(_COLUMNS))})\b(?![.(])|(?<=FROM |JOIN )(?:{'|'.join(TABLES)})\b)"
    )
    return _unquoted(sql, lambda part: dotted.sub(r"`\1`", part))


def _hinted(sql: str) -> str:
    hint = re.compile(r"\b(SELECT)\b", re.I)
    return _unquoted(sql, lambda part: hint.sub(r"\1 /*+ BROADCAST(orders, users), MERGE(r1) */", part))


_SIMPLE = r"[A-Za-z_][\w.]*|\d+|'[^']*'"
_UNEQUAL = re.compile(
    rf"(\b(?:WHERE|AND|OR|ON|HAVING|WHEN)\s+|\()({_SIMPLE}) <> ({_SIMPLE})(?=\)|$|\s+(?:AND|OR|GROUP|ORDER|THEN)\b)"
)


def _not_equal(sql: str) -> str:
    """``a <> b`` as ``NOT a = b``, where both are simple."""
    return _UNEQUAL.sub(r"\1NOT \2 = \3", sql)


# -- casts ---------------------------------------------------------------------------------------------------------


def _cast_by(sql: str, spell: Callable[[str, str], str | None]) -> str:
    """The statement with its casts spelled by ``spell``, which takes a value and a type."""
    found = re.search(r"\bCAST\(", sql)
    if found is None:
        return sql
    end = _closing(sql, found.end() - 1)
    inner = _cast_by(sql[found.end() : end], spell)
    value, kind = inner.rsplit(" AS ", 1)
    spelled = spell(value, kind)
    made = f"CAST({inner})" if spelled is None else spelled
    return sql[: found.start()] + made + _cast_by(sql[end + 1 :], spell)


def _closing(sql: str, opening: int) -> int:
    """Where the parenthesis closes that opens at ``opening``."""
    return next(place for place, depth in _depths(sql) if place > opening and depth == _depth_at(sql, opening))


def _depths(sql: str) -> Iterator[tuple[int, int]]:
    """Every place outside of quotes with the number of parentheses around it; one that closes counts as outside."""
    depth = 0
    for piece in _PIECES.finditer(sql):
        if piece["kept"]:
            continue
        depth -= piece[0] == ")"
        yield piece.start(), depth
        depth += piece[0] == "("


def _depth_at(sql: str, place: int) -> int:
    return next(depth for each, depth in _depths(sql) if each == place)


def _colons(value: str, kind: str) -> str:
    return f"({value}) :: {kind}"


def _called(value: str, kind: str) -> str | None:
    return f"{kind}({value})" if re.fullmatch(_CALLED, kind, re.I) else None


# -- grouping ------------------------------------------------------------------------------------------------------


def _grouped(sql: str, spell: Callable[[list[str], list[str]], str | None]) -> str:
    """The statement with its outermost GROUP BY spelled by ``spell``, which takes the keys and the items selected."""
    depths = dict(_depths(sql))
    pieces = [piece for piece in _PIECES.finditer(sql) if depths.get(piece.start()) == 0 and piece["word"]]
    at = {piece[0].upper(): piece for piece in reversed(pieces)}
    if not {"SELECT", "FROM", "GROUP"} <= at.keys() or "DISTINCT" in at:
        return sql
    behind = at["GROUP"].end() + len(" BY ")
    ends = [piece.start() for piece in pieces if piece.start() > behind and piece[0].upper() in _ENDS]
    end = min(ends, default=len(sql))
    keys = _listed(sql[behind:end].strip())
    items = _listed(sql[at["SELECT"].end() : at["FROM"].start()].strip())
    if any(re.search(r"(?i)\b(ROLLUP|CUBE|GROUPING|ALL|WITH|session_window|window)\b", key) for key in keys):
        return sql
    spelled = spell(keys, [re.sub(r" AS \w+$", "", item) for item in items])
    return sql if spelled is None else f"{sql[:behind]}{spelled} {sql[end:]}".rstrip()


def _listed(text: str) -> list[str]:
    """The parts of a list between commas."""
    commas = [place for place, depth in _depths(text) if depth == 0 and text[place] == ","]
    edges = [-1, *commas, len(text)]
    return [text[start + 1 : end].strip() for start, end in pairwise(edges)]


def _by_position(keys: list[str], items: list[str]) -> str | None:
    if not set(keys) <= set(items):
        return None
    return ", ".join(str(items.index(key) + 1) for key in keys)


def _all(keys: list[str], items: list[str]) -> str | None:
    """ALL stands for the items without an aggregate, in their order."""
    calls = [item for item in items if item not in keys]
    in_order = list(dict.fromkeys(item for item in items if item in keys))
    is_aggregate = all(re.match(r"(?i)(count|sum|avg|min|max)\(", call) for call in calls)
    return "ALL" if keys == in_order and is_aggregate else None


SPELLINGS: dict[str, Callable[[str], str]] = {
    "small letters": lambda sql: _words(sql, str.lower),
    "capitals": lambda sql: _words(sql, str.upper),
    "mixed letters": lambda sql: _words(sql, str.swapcase),
    "comments": lambda sql: _spaces(sql, " /* FROM it's /* not */ there; */ ") + " -- the end, LIMIT 1",
    "hints": _hinted,
    "lines": lambda sql: "\n\t" + _spaces(sql, "\r\n\t  ") + "\n;\n",
    "back-quotes": _back_quoted,
    "!=": lambda sql: sql.replace("<>", "!="),
    "NOT =": _not_equal,
    "::": lambda sql: _cast_by(sql, _colons),
    "int(x)": lambda sql: _cast_by(sql, _called),
    "GROUP BY 1": lambda sql: _grouped(sql, _by_position),
    # Spark has no GROUP BY ALL WITH CUBE.
    "GROUP BY ALL": lambda sql: sql if re.search(r"(?i)\bWITH (CUBE|ROLLUP)\b", sql) else _grouped(sql, _all),
    "pipe syntax": lambda sql: f"FROM ({sql}) |> WHERE true |> SELECT *",
}
