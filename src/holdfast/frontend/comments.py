"""SQL without its comments, every other character where it was.

To Spark a comment is white space, also inside ``GROUP /* … */ BY``, which sqlglot reads as one word, and comments in
``/* … */`` nest. Hints (``/*+ … */``) stay: they are part of the statement.
"""

from __future__ import annotations

import re

from sqlglot.errors import TokenError

_PIECE = re.compile(
    r"""(?P<raw>\b[rR](?:'[^']*'|"[^"]*"))"""
    r"""|(?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`)"""
    r"""|(?P<line>--(?:\\\n|[^\r\n])*)"""
    r"""|(?P<hint>/\*\+)"""
    r"""|(?P<open>/\*)""",
    re.S,
)
_EDGE = re.compile(r"/\*|\*/")


def blanked(sql: str) -> str:
    """The text with spaces (and its line breaks) in the place of comments."""
    parts: list[str] = []
    at = 0
    while (piece := _PIECE.search(sql, at)) is not None:
        parts.append(sql[at : piece.start()])
        end = piece.end()
        if piece["open"]:
            end = _end(sql, end)
        comment = piece["line"] or piece["open"]
        found = sql[piece.start() : end]
        parts.append(re.sub(r"[^\r\n]", " ", found) if comment else found)
        at = end
    return "".join([*parts, sql[at:]])


def _end(sql: str, at: int) -> int:
    """Where a comment ends whose opening is behind ``at``."""
    depth = 1
    while depth and (edge := _EDGE.search(sql, at)) is not None:
        depth += 1 if edge[0] == "/*" else -1
        at = edge.end()
    if depth:
        raise TokenError("a comment does not end: */ is missing")
    return at
