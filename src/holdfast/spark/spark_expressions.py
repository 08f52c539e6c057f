"""Spark's own expressions, called by name.

An expression that Holdfast does not compute itself runs in Spark as the same object that Spark made when it analysed
the view. It gets a name, derived from its meaning, and in the texts of Holdfast's own queries (`spark.stretches`) it is
a call of that name over the values of its holes: columns, and other parts that Holdfast computes. `known_to` registers
those names as functions of a session: when Spark analyses such a query, it asks `_Builder` for the expression over the
given arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from holdfast.plan.expression import FOREIGN, foreign_name
from holdfast.spark.jvm import CATALYST, jvm_class, scala_object

_EXPRESSIONS = f"{CATALYST}.expressions"


@dataclass(frozen=True)
class _Kept:
    expression: Any
    holes: tuple[tuple[int, ...], ...]
    """The paths from the expression to its holes, as indices of children."""


_kept: dict[str, _Kept] = {}
_known: WeakKeyDictionary[SparkSession, set[str]] = WeakKeyDictionary()
"""Session → the names already registered as its functions."""


def keep(expression: Any, holes: Sequence[tuple[int, ...]], meaning: str) -> str:
    """Keep an expression with these holes, and return its name. ``meaning``: differs for expressions that mean
    something else."""
    mark = blake2b(f"{meaning}\n{list(holes)}".encode(), digest_size=8).hexdigest()
    name = foreign_name(str(expression.prettyName()), mark)
    _kept.setdefault(name, _Kept(expression, tuple(holes)))
    return name


def error(session: SparkSession, condition: str) -> str:
    """Return the name of an expression that raises the Spark error ``condition``, which has no parameters."""
    jvm: Any = session.sparkContext._jvm
    types = jvm.org.apache.spark.sql.types.DataType
    literal = _object(jvm, "org.apache.spark.sql.catalyst.expressions.Literal").create
    nothing = _object(jvm, "scala.collection.immutable.Map").empty()
    raised = jvm.org.apache.spark.sql.catalyst.expressions.RaiseError(
        literal(condition, types.fromDDL("string")),
        literal(nothing, types.fromDDL("map<string, string>")),
        types.fromDDL("void"),
    )
    return keep(raised, [], condition)


def collation_key(session: SparkSession, collation: str) -> str:
    """Return the name of an expression that maps texts to bytes: equal bytes for texts equal by the collation."""
    kind = jvm_class(session, "org.apache.spark.sql.types.DataType").fromDDL("string")
    text = scala_object(session, f"{_EXPRESSIONS}.Literal").create(None, kind)
    resolved = jvm_class(session, f"{_EXPRESSIONS}.ResolvedCollation")(collation)
    # Collate sets the collation, whatever collation the argument has.
    own = jvm_class(session, f"{_EXPRESSIONS}.Collate")(text, resolved)
    return keep(jvm_class(session, f"{_EXPRESSIONS}.CollationKey")(own), [(0, 0)], f"collation key {collation}")


def _object(jvm: Any, name: str) -> Any:
    """A Scala object."""
    return jvm.java.lang.Class.forName(name + "$").getField("MODULE$").get(None)


def is_about(name: str, text: str) -> bool:
    """Whether an error of Spark, given as its text, is about the expression ``name`` or a part of it."""
    if name not in _kept:
        return False
    waiting = [_kept[name].expression]
    while waiting:
        each = waiting.pop()
        summary = str(each.origin().context().summary()).strip()
        if summary and summary in text:
            return True
        children = each.children()
        waiting += [children.apply(place) for place in range(children.size())]
    return False


def known_to(session: SparkSession, query: str) -> None:
    """Register the names in ``query`` as functions of the session."""
    known = _known.setdefault(session, set())
    names = {found[0] for found in FOREIGN.finditer(query)} - known
    if not names:
        return
    own: Any = session
    registry = own._jsparkSession.sessionState().functionRegistry()
    jvm: Any = session.sparkContext._jvm
    ensure_callback_server_started(session.sparkContext._gateway)
    for name in sorted(names):
        registry.createOrReplaceTempFunction(name, _Builder(jvm, _kept[name]), "scala_udf")
        known.add(name)


class _Builder:
    """A Scala function from a list of arguments to the expression over them."""

    def __init__(self, jvm: Any, kept: _Kept) -> None:
        self._jvm, self._kept = jvm, kept

    def apply(self, arguments: Any) -> Any:
        given = {path: arguments.apply(place) for place, path in enumerate(self._kept.holes)}
        return self._filled(self._kept.expression, (), given)

    def _filled(self, expression: Any, path: tuple[int, ...], given: dict[tuple[int, ...], Any]) -> Any:
        if path in given:
            return given[path]
        if not any(hole[: len(path)] == path for hole in given):
            return expression
        children = expression.children()
        filled = [self._filled(children.apply(place), (*path, place), given) for place in range(children.size())]
        return expression.withNewChildren(self._jvm.PythonUtils.toSeq(filled))

    class Java:
        implements = ("scala.Function1",)
