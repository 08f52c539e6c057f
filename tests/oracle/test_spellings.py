"""A statement means the same however it is spelled: in small letters, with comments, with other white space, with names
in back-quotes, with ``!=``. The oracle's cases are compared with Spark's answers as they stand; here each
is spelled otherwise, and its plan must be the one of the case itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.errors import DeclarationError, SqlError, Unsupported
from holdfast.frontend.schema import parse_schema
from holdfast.frontend.udf import user_function
from holdfast.plan.nodes import Node, Source, UserFunction

from ..planned import plan_sql
from .cases import make
from .data import SCHEMAS
from .generating import FUNCTIONS

CASES = 200

_PIECES = re.compile(
    r"""(?P<kept>r?'(?:[^'\\]|\\.|'')*'|"[^"]*"|`[^`]*`|/\*.*?\*/)|(?P<word>[A-Za-z_][A-Za-z_0-9]*)|(?P<other>\s+|.)""",
    re.S,
)
_COLUMNS = {field.name for name, text in SCHEMAS.items() for field in parse_schema(text, subject=name)}


def _words(sql: str, spell: Callable[[str], str]) -> str:
    """The statement with every word spelled otherwise that is not in quotes."""
    return _PIECES.sub(lambda piece: spell(piece["word"]) if piece["word"] else piece[0], sql)


def _spaces(sql: str, space: str) -> str:
    return _PIECES.sub(lambda piece: space if piece[0].isspace() else piece[0], sql)


def _quoted(sql: str) -> str:
    """Names of columns in back-quotes, where nothing but a column can stand: before or behind a dot."""
    dotted = re.compile(r"(?<=[A-Za-z0-9_]\.)(" + "|".join(sorted(_COLUMNS)) + r")\b(?![.(])")
    return "".join(
        part if place % 2 else dotted.sub(r"`\1`", part) for place, part in enumerate(re.split("('[^']*')", sql))
    )


SPELLINGS: dict[str, Callable[[str], str]] = {
    "small letters": lambda sql: _words(sql, str.lower),
    "capitals": lambda sql: _words(sql, str.upper),
    "mixed letters": lambda sql: _words(sql, str.swapcase),
    "comments": lambda sql: _spaces(sql, " /* FROM it's /* not */ there; */ ") + " -- the end, LIMIT 1",
    "lines": lambda sql: "\n\t" + _spaces(sql, "\r\n\t  ") + "\n;\n",
    "back-quotes": _quoted,
    "unequal": lambda sql: sql.replace("<>", "!="),
}


def _tables() -> dict[str, Node]:
    return {name: Source(name, parse_schema(schema, subject=name)) for name, schema in SCHEMAS.items()}


def _functions() -> dict[str, UserFunction]:
    return {name: user_function(name, *given) for name, given in FUNCTIONS.items()}


def _plain(node: Node) -> str:
    """A plan without the case of letters, in which Spark's names do not differ."""
    return repr(node).lower()


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_statement_means_the_same_however_it_is_spelled(spelling: str) -> None:
    respell = SPELLINGS[spelling]
    wrong = []
    for number in range(CASES):
        tables, others = _tables(), _tables()
        for view, query in make(number).views.items():
            if not isinstance(query, str):
                break
            tables[view] = meant = plan_sql(view, query, tables, _functions())
            spelled = respell(query)
            try:
                others[view] = found = plan_sql(view, spelled, others, _functions())
            except (SqlError, Unsupported) as error:
                wrong.append(f"case {number}: {error}\n  {query}\n  {spelled}")
                break
            else:
                if _plain(found) != _plain(meant):
                    wrong.append(f"case {number}: another plan\n  {query}\n  {spelled}")
    assert not wrong, f"{len(wrong)} of {CASES}\n" + "\n".join(wrong[:5])


T = {
    "t": Source("t", parse_schema("k long, x long, d date", subject="t")),
    "u": Source("u", parse_schema("y long, x long, k long", subject="u")),
    "clocks": Source("clocks", parse_schema("id long, current_date date, current_user string", subject="clocks")),
}


def _planned(sql: str) -> Node:
    return plan_sql("v", sql, T)


@pytest.mark.parametrize(
    "frame",
    [
        "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
        "ROWS UNBOUNDED PRECEDING",
        "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
        "RANGE BETWEEN INTERVAL 10 DAYS PRECEDING AND CURRENT ROW",
        "RANGE BETWEEN INTERVAL 1 DAY FOLLOWING AND INTERVAL 2 DAYS FOLLOWING",
    ],
)
def test_a_frame_in_small_letters_is_that_frame(frame: str) -> None:
    def plan(frame: str) -> str:
        return repr(_planned(f"SELECT k, sum(x) OVER (ORDER BY d {frame}) AS s FROM t")).lower()

    assert plan(frame.lower()) == plan(frame)
    assert plan(frame) != plan("ROWS BETWEEN 3 PRECEDING AND 2 PRECEDING")


def test_distinct_rows_are_not_counted_as_all_rows() -> None:
    with pytest.raises(Unsupported, match=r"count\(DISTINCT \*\) is not supported: name the columns"):
        _planned("SELECT count(DISTINCT *) AS n FROM t")


@pytest.mark.parametrize("name", ["current_date", "CURRENT_USER"])
def test_a_column_goes_before_the_function_of_its_name(name: str) -> None:
    assert _planned(f"SELECT {name} AS x FROM clocks") == _planned(f"SELECT `{name.lower()}` AS x FROM clocks")
    assert _planned("SELECT current_date AS x FROM t") == _planned("SELECT current_date() AS x FROM t")


def test_isnull_is_a_name_unless_it_is_called() -> None:
    assert _planned("SELECT x isnull FROM t").columns == ("isnull",)
    assert "is null" not in repr(_planned("SELECT x isnull FROM t")).lower()
    with pytest.raises(SqlError, match="isnull"):
        _planned("SELECT k FROM t WHERE x isnull")


@pytest.mark.parametrize(
    ("join", "columns"),
    [
        ("LEFT SEMI JOIN u USING (x)", ("x", "k", "d")),
        ("LEFT ANTI JOIN u USING (d, k)", ("d", "k", "x")),
        ("JOIN (SELECT y, x, k FROM u) USING (x, k)", ("x", "k", "d", "y")),
        ("JOIN (SELECT y, x FROM u) USING (x) LEFT SEMI JOIN u USING (k)", ("k", "x", "d", "y")),
        ("FULL JOIN u USING (x, k)", ("x", "k", "d", "y")),
    ],
)
def test_the_columns_of_using_come_first_the_latest_before_all(join: str, columns: tuple[str, ...]) -> None:
    tables = {**T, "u": Source("u", parse_schema("y long, x long, k long, d date", subject="u"))} if "d," in join else T
    assert plan_sql("v", f"SELECT * FROM t {join}", tables).columns == columns


def test_names_that_differ_only_by_case_are_refused(tmp_path: Path) -> None:
    flow = hf.Flow("cases", log=tmp_path / "log")
    flow.input("orders", "id long")
    with pytest.raises(DeclarationError, match="input 'Orders': there is 'orders' already, and names ignore case"):
        flow.input("Orders", "id long")
    with pytest.raises(DeclarationError, match="view 'ORDERS': there is 'orders' already"):
        flow.view("ORDERS", "SELECT id + 1 AS id FROM orders")


def test_a_comment_that_does_not_end_is_an_error() -> None:
    with pytest.raises(SqlError, match="comment does not end"):
        _planned("SELECT k FROM t /* WHERE x > 1")


@pytest.mark.parametrize("word", ["DISTINCT", "ALL", "AS"])
def test_a_select_without_columns_is_an_error(word: str) -> None:
    with pytest.raises(SqlError, match="without columns"):
        _planned(f"SELECT {word} FROM t")
