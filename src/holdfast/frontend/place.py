"""Where in the text: parsing a statement, and errors that name the line and column of what they are about.

sqlglot keeps the offsets of names and calls but not of keywords, so the place of a construct is that of its first
name or, where a keyword says it better (``LEFT`` of a join), that of the nearest such token.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TypeVar

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from holdfast.errors import DeclarationError, SqlError, Unsupported
from holdfast.frontend.comments import blanked
from holdfast.plan.expression import Faithful, Tree
from holdfast.plan.nodes import UserFunction

Kind = TypeVar("Kind", bound=DeclarationError)


class Text:
    """A statement's text, and whose it is (``view 'top'``).

    A text that Holdfast put together from a verb's arguments is not ``placed``: its errors name no line and column.
    ``functions`` are the user's, by lower-case name, that it may call.
    """

    def __init__(
        self,
        sql: str,
        subject: str,
        view: str | None = None,
        *,
        placed: bool = True,
        functions: Mapping[str, UserFunction] | None = None,
    ) -> None:
        self.sql, self.subject, self.view, self.placed = sql, subject, view, placed
        self.functions: Mapping[str, UserFunction] = functions or {}
        self._draws = itertools.count()
        self._subqueries = itertools.count()
        self.tokens: list[Token] = []

    def next_draw(self) -> str:
        """A number for the next nondeterministic call of the text: calls in other places are other draws."""
        return str(next(self._draws))

    def next_subquery(self) -> int:
        """A number for the next subquery of the text."""
        return next(self._subqueries)

    def parse(self) -> Tree:
        """The one statement of the text."""
        if not isinstance(self.sql, str):
            raise SqlError(f"{self.subject}: SQL must be a string, found {type(self.sql).__name__}", view=self.view)
        try:
            self.tokens = Faithful().tokenize(blanked(self.sql))
            _read_windows_as_names(self.tokens)
            _read_as_names(self.tokens)
            statements = Faithful().parser().parse(self.tokens, self.sql)
        except TokenError as error:
            raise self._syntax(str(error).split("\n")[0], len(self.sql.rstrip()) - 1) from None
        except ParseError as error:
            self._refuse_unreadable()
            raise self._parse_error(error) from None
        self._refuse_pipes()
        found = [statement for statement in statements if statement is not None]
        if not found:
            raise self.error(SqlError, "the SQL is empty; expected a SELECT")
        if len(found) > 1:
            raise self.unsupported("more than one statement", found[1], "declare one view for each")
        return found[0]

    def _refuse_unreadable(self) -> None:
        """Refuse what Spark can read and sqlglot cannot."""
        for token in self.tokens:
            if self.sql.startswith(">>>", token.start):
                raise self._refused(">>>", token, "write shiftrightunsigned(…)")

    def _refuse_pipes(self) -> None:
        for token in self.tokens:
            if token.text == "|>":
                raise self._refused("|> (pipe syntax)", token, "write it as a SELECT")

    def _refused(self, construct: str, token: Token, advice: str) -> Unsupported:
        return self.unsupported(construct, exp.Null().update_positions(token), advice)

    def _parse_error(self, error: ParseError) -> SqlError:
        details = error.errors[0] if error.errors else {}
        piece = str(details.get("highlight") or "")
        line, column = details.get("line"), details.get("col")
        what = str(details.get("description") or "cannot be parsed").rstrip(".")
        if "missing for <class" in what:
            what = "the expression is incomplete"
        if line is None or column is None:
            return self.error(SqlError, f"syntax error: {what}")
        # sqlglot's column is that of the token's last character
        start = self._offset(int(line), int(column)) - max(len(piece) - 1, 0)
        return self._syntax(what[0].lower() + what[1:], start, piece)

    def _syntax(self, what: str, offset: int, piece: str = "") -> SqlError:
        offset = max(offset, 0)
        line, column = self.line_column(offset)
        near = piece or self.sql[offset : offset + 20].split("\n")[0]
        if not self.placed:
            return SqlError(f"{self.subject}: syntax error near {near!r}: {what}", view=self.view, near=near)
        message = f"{self.subject}: syntax error at line {line}, column {column}, near {near!r}: {what}"
        return SqlError(message, view=self.view, line=line, column=column, near=near)

    def _offset(self, line: int, column: int) -> int:
        starts = [0]
        for row in self.sql.split("\n"):
            starts.append(starts[-1] + len(row) + 1)
        return starts[line - 1] + column - 1

    def line_column(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset, both from 1."""
        before = self.sql[:offset]
        return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1

    def offset(self, tree: Tree, keyword: str | None = None, *, after: bool = False) -> int | None:
        """Where ``tree`` starts, or the nearest ``keyword`` before (``after``: behind) its first name."""
        if not self.placed:
            return None
        starts = [start for node in tree.walk() if (start := node.meta.get("start")) is not None]
        if not starts and keyword is None:
            return None
        start = min(starts, default=len(self.sql))
        if keyword is None:
            return start
        words = [token.start for token in self.tokens if token.text.upper().split(" ")[0] == keyword]
        if after:
            return next((word for word in words if word >= start), start)
        return next((word for word in reversed(words) if word <= start), start if starts else None)

    def error(
        self,
        kind: type[Kind],
        message: str,
        tree: Tree | None = None,
        keyword: str | None = None,
        *,
        after: bool = False,
        **fields: object,
    ) -> Kind:
        """An error about ``tree``, with its place in the fields and, for what is refused, in the text."""
        offset = self.offset(tree, keyword, after=after) if tree is not None else None
        if offset is None:
            return kind(f"{self.subject}: {message}", view=self.view, **fields)
        line, column = self.line_column(offset)
        if kind is Unsupported:
            message = f"{message} (line {line}, column {column})"
        return kind(f"{self.subject}: {message}", view=self.view, line=line, column=column, **fields)

    def unsupported(
        self,
        construct: str,
        tree: Tree | None = None,
        advice: str = "",
        keyword: str | None = None,
        *,
        after: bool = False,
    ) -> Unsupported:
        """``construct`` is right in Spark, but cannot be maintained (yet)."""
        message = f"{construct} is not supported" + (f": {advice}" if advice else "")
        return self.error(Unsupported, message, tree, keyword, after=after, construct=construct)


_NAMES = frozenset(
    getattr(TokenType, name)
    for name in (
        "CURRENT_DATE", "CURRENT_DATETIME", "CURRENT_SCHEMA", "CURRENT_TIME", "CURRENT_TIMESTAMP", "CURRENT_USER",
        "CURRENT_USER_ID", "CURRENT_ROLE", "CURRENT_CATALOG", "SESSION_USER", "LOCALTIME", "LOCALTIMESTAMP",
        "ISNULL", "NOTNULL",
    )
)  # fmt: skip


def _read_as_names(tokens: list[Token]) -> None:
    """What is a word of its own to sqlglot and a name to Spark. ``current_date`` is a column, if there is one of that
    name, and only otherwise a call; ``x isnull`` is ``x AS isnull``."""
    for place, token in enumerate(tokens):
        called = place + 1 < len(tokens) and tokens[place + 1].token_type == TokenType.L_PAREN
        if token.token_type in _NAMES and not called:
            token.token_type = TokenType.VAR


def _read_windows_as_names(tokens: list[Token]) -> None:
    """To Spark ``window`` is a name like any other, unless it begins a clause: ``WINDOW w AS (…)``."""
    for place, token in enumerate(tokens):
        if token.token_type != TokenType.WINDOW:
            continue
        following = [each.text.upper() for each in tokens[place + 1 : place + 4]]
        if len(following) < 3 or following[1:] != ["AS", "("]:
            token.token_type = TokenType.VAR
