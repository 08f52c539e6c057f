"""The order in which a person expects to see the rows of a view."""

from __future__ import annotations

import pyarrow as pa

from holdfast.frontend.sql_words import Word, words


def ordered(rows: pa.Table, sql: str) -> pa.Table:
    """The rows of a view, sorted for people: by its own ORDER BY if it has one, and then by its columns. (A view itself
    is a bag, without an order.)"""
    kinds = {field.name: field.type for field in rows.schema}
    keys = [(name, order) for name, order in _order_by(sql, rows.column_names) if not pa.types.is_nested(kinds[name])]
    said = {name for name, _ in keys}
    keys += [(name, "ascending") for name in kinds if name not in said and _sorts(kinds[name])]
    return rows.sort_by(keys) if keys and rows.num_rows else rows


def _sorts(kind: pa.DataType) -> bool:
    return not (pa.types.is_nested(kind) or pa.types.is_null(kind))


def _order_by(sql: str, columns: list[str]) -> list[tuple[str, str]]:
    """Column and direction of the items of the outermost ORDER BY, up to the first item that is not a column of the
    view."""
    spelled = {name.lower(): name for name in columns}
    found = []
    for item in _sorted_by(sql):
        own = [word for word in item if not word.says("ASC", "DESC", "NULLS", "FIRST", "LAST")]
        *before, last = own or item
        name = spelled.get(last.name.lower())
        if name is None or not all(word.name or word.says(".") for word in before):
            break
        found.append((name, "descending" if any(word.says("DESC") for word in item) else "ascending"))
    return found


def _sorted_by(sql: str) -> list[list[Word]]:
    """The items of the outermost ORDER BY, each as its words."""
    depth, outermost = 0, []
    for word in words(sql):
        if depth == 0:
            outermost.append(word)
        depth += word.says("(") - word.says(")")
    starts = [place for place, word in enumerate(outermost) if word.says("BY") and outermost[place - 1].says("ORDER")]
    items: list[list[Word]] = [[]]
    for word in outermost[starts[-1] + 1 :] if starts else ():
        if word.says("LIMIT", "OFFSET", ";"):
            break
        if word.says(","):
            items.append([])
        else:
            items[-1].append(word)
    return [item for item in items if item]
