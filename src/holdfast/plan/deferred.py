"""Expressions whose text depends on types, which only Spark knows: calls that stand for them until it is asked.

``_hf_instant(x, 'type')``
    ``x`` as a timestamp, as Spark compares it with a value of that type (``timestamp``, ``timestamp_ntz``, ``date``).
``_hf_time(x)``
    ``x`` as a timestamp (with or without zone), as Spark takes it for a time window; of a window, its last moment.
``_hf_gap(x)``
    ``x`` as the gap of a session: an interval.
``_hf_window(x, duration, slide, start, shift)``
    The time window of ``x``, ``struct<start, end>``, ``shift`` slides before the last one that holds it; numbers are
    microseconds, and ``x`` is a timestamp.

The frontends write them; `spark.analysis` settles every `Linear` that has one, so that no plan that runs does.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from holdfast.plan.expression import Tree, read, render

INSTANT = "_hf_instant"
TIME = "_hf_time"
GAP = "_hf_gap"
WINDOW = "_hf_window"
_PREFIX = "_hf_"

_DAY = 86_400_000_000

TypeOf = Callable[[str], str]
"""The type of an expression, as Spark's simpleString. It may refuse."""


def is_deferred(text: str) -> bool:
    return _PREFIX in text


def settled(text: str, type_of: TypeOf) -> str:
    """The expression with all such calls spelled out."""
    root = exp.Tuple(expressions=[read(text)])
    for call in reversed(list(root.find_all(exp.Anonymous))):
        match call.name:
            case "_hf_instant":
                call.replace(_instant(call.expressions[0], call.expressions[1].name, type_of))
            case "_hf_time":
                call.replace(_time(call.expressions[0], type_of))
            case "_hf_gap":
                call.replace(_gap(call.expressions[0], type_of))
            case "_hf_window":
                call.replace(_window(call.expressions[0], [int(each.name) for each in call.expressions[1:]], type_of))
    return render(root.expressions[0])


def _instant(value: Tree, valued: str, type_of: TypeOf) -> Tree:
    # Spark refuses here what it would not compare.
    type_of(render(exp.EQ(this=value.copy(), expression=_cast(exp.null(), valued))))
    kind = type_of(render(value))
    if valued == "timestamp" or kind == "timestamp":
        return value.copy() if kind == "timestamp" else _cast(value, "timestamp")
    if valued == "timestamp_ntz":
        return _cast(_cast(value, "timestamp_ntz"), "timestamp")
    # Against a date, a text is read as a date; a timestamp is not cut to one.
    return _cast(_cast(value, "date") if kind == "string" else value, "timestamp")


def _time(value: Tree, type_of: TypeOf) -> Tree:
    kind = type_of(render(value))
    if kind.startswith("struct<"):
        end = exp.Dot(this=value.copy(), expression=exp.Identifier(this="end", quoted=True))
        return exp.Sub(this=end, expression=_interval("0.000001", "SECOND"))
    # What Spark takes no window of, it refuses here.
    type_of(f"window({render(value)}, '1 minute')")
    return value.copy() if kind in ("timestamp", "timestamp_ntz") else _cast(value, "timestamp")


def _gap(value: Tree, type_of: TypeOf) -> Tree:
    return exp.Cast(this=value.copy(), to=exp.DataType.build("interval", dialect="spark"))


def _window(value: Tree, numbers: list[int], type_of: TypeOf) -> Tree:
    """Spark's own arithmetic (`TimeWindowing`): in microseconds, of a timestamp without zone as if it were in UTC."""
    duration, slide, start, shift = numbers
    local = type_of(render(value)) == "timestamp_ntz"
    moment = value
    micros = _local_micros(moment) if local else _call("unix_micros", moment)
    past = _call("pmod", exp.Sub(this=micros, expression=_big(start)), _big(slide))
    if local:
        first: Tree = exp.Sub(this=moment.copy(), expression=_span(exp.Add(this=past, expression=_big(shift * slide))))
        last: Tree = exp.Add(this=first.copy(), expression=_span(_big(duration)))
    else:
        begun = exp.Sub(this=exp.Sub(this=micros.copy(), expression=past), expression=_big(shift * slide))
        first = _call("timestamp_micros", begun)
        last = _call("timestamp_micros", exp.Add(this=begun.copy(), expression=_big(duration)))
    return _call("named_struct", exp.Literal.string("start"), first, exp.Literal.string("end"), last)


def _local_micros(value: Tree) -> Tree:
    """Microseconds since 1970-01-01 00:00 on the same clock."""
    days = exp.Mul(this=_cast(_call("unix_date", _cast(value, "date")), "bigint"), expression=_big(_DAY))
    midnight = _cast(_cast(value, "date"), "timestamp_ntz")
    return exp.Add(this=days, expression=_micros_of(exp.Sub(this=value.copy(), expression=midnight)))


def _micros_of(span: Tree) -> Tree:
    """The microseconds of an interval of less than a day."""
    total: Tree = _cast(exp.Mul(this=_extract("SECOND", span), expression=exp.Literal.number(1_000_000)), "bigint")
    for unit, size in (("MINUTE", 60_000_000), ("HOUR", 3_600_000_000)):
        part = exp.Mul(this=_cast(_extract(unit, span), "bigint"), expression=_big(size))
        total = exp.Add(this=total, expression=part)
    return total


def _extract(unit: str, span: Tree) -> Tree:
    return _call("date_part", exp.Literal.string(unit), span)


def _span(micros: Tree) -> Tree:
    """So many microseconds, as an interval."""
    seconds = exp.Div(this=_cast(micros, "decimal(18,0)"), expression=exp.Literal.number(1_000_000))
    zeros = [exp.Literal.number(0) for _ in range(3)]
    return _call("make_dt_interval", *zeros, _cast(seconds, "decimal(18,6)"))


def _big(number: int) -> Tree:
    literal = exp.Cast(this=exp.Literal.number(abs(number)), to=exp.DataType.build("bigint", dialect="spark"))
    return exp.Neg(this=literal) if number < 0 else literal


def _call(name: str, *arguments: Tree) -> Tree:
    return exp.Anonymous(this=name, expressions=[each.copy() for each in arguments])


def _cast(tree: Tree, kind: str) -> Tree:
    return exp.Cast(this=tree.copy(), to=exp.DataType.build(kind, dialect="spark"))


def _interval(number: str, unit: str) -> Tree:
    return exp.Interval(this=exp.Literal.string(number), unit=exp.Var(this=unit))
