"""The paths of a crossing as Spark's queries.

A path's row is a struct ``c0, c1, …, _diff`` in a column of its own, which is NULL in rows of other paths; each step
makes the next such column from it. All paths go together, in one query over ``__wide``: analysing one query is much
cheaper than one query per path.

- A `Linear` is ``CASE WHEN row AND predicate THEN struct(outputs) END``: as in Spark's own plan, the outputs are
  evaluated only where the predicate holds.
- A `Generate` is LATERAL VIEW OUTER of a generator whose argument is NULL in rows of other paths, so that each of those
  rows passes exactly once. A generator that cannot tell an empty argument from a NULL element is replaced by one that
  gives positions (NULL if there is no element): ``explode`` is ``posexplode`` without its position.
- A step that Spark cannot run (an `Apply`) between two such steps ends a *round*: rows go to Python, and a further
  query takes them on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from holdfast.operators.generate import Generate
from holdfast.operators.linear_step import native_step
from holdfast.operators.step import NativeStep
from holdfast.plan.expression import Literal, quoted, sql
from holdfast.plan.nodes import Field, Linear, Step
from holdfast.plan.types import ddl_type

# Spark allows variant_explode only in lateral joins, which it may plan as joins. So it is written out with arrays.
_VARIANT = (
    "CASE WHEN startswith(schema_of_variant({0}), 'ARRAY') "
    "THEN transform(CAST({0} AS array<variant>), e -> named_struct('key', CAST(NULL AS string), 'value', e)) "
    "WHEN startswith(schema_of_variant({0}), 'OBJECT') THEN map_entries(CAST({0} AS map<string, variant>)) END"
)
_PASSED = ("__owner", "__channel", "__buffer")


@dataclass(frozen=True)
class SparkStretch:
    """Steps of one path that Spark runs, and the column in which its rows enter (``__in{entry}``)."""

    entry: int
    steps: tuple[Step, ...]
    channel: int = 0
    """The channel at the path's end. Errors of Spark about one of its expressions name it (`failing_channel`)."""


@dataclass(frozen=True)
class Round:
    """A query over ``__wide``, and the native steps to run on its rows before the next round."""

    query: str
    columns: tuple[tuple[str, tuple[Field, ...]], ...]
    """The struct columns after the calls: (name, fields)."""

    calls: tuple[tuple[int, tuple[NativeStep, ...]], ...] = ()
    """(index of the column, the steps to run on it)."""

    @property
    def schema(self) -> str:
        return ", ".join(f"{name} {struct_of(fields)}" for name, fields in self.columns)


def struct_of(fields: Iterable[Field]) -> str:
    """The type of a struct of these fields and ``_diff``."""
    columns = [f"c{index}:{ddl_type(field.type)}" for index, field in enumerate(fields)]
    return f"struct<{','.join([*columns, '_diff:bigint'])}>"


def rounds(entries: int, stretches: Sequence[SparkStretch]) -> Iterator[Round]:
    """Yield the rounds, one after the other, that take all stretches to their ends (``__out0``, …)."""
    done = [0] * len(stretches)
    current = [f"__in{stretch.entry}" for stretch in stretches]
    columns = [f"__in{index}" for index in range(entries)]
    while True:
        text = _Query([*_PASSED, *columns])
        while waiting := [number for number, stretch in enumerate(stretches) if _spark_is_next(stretch, done[number])]:
            steps = {number: stretches[number].steps[done[number]] for number in waiting}
            results = {number: f"__mid{number}_{done[number]}" for number in waiting}
            # All waiting `Linear` steps are made at once: a query as deep as there are paths would take Spark minutes
            # to analyse.
            together = [number for number, step in steps.items() if isinstance(step, Linear)]
            if together:
                text.linear(
                    [
                        (steps[number], current[number], results[number], _named(number, stretches[number].channel))
                        for number in together
                    ]
                )
            else:
                together = waiting[:1]
                text.generate(steps[together[0]], current[together[0]], results[together[0]])
            for number in together:
                current[number] = results[number]
                done[number] += 1
        if all(index == len(stretch.steps) for index, stretch in zip(done, stretches, strict=True)):
            yield Round(text.select([(name, f"__out{number}") for number, name in enumerate(current)]), ())
            return
        columns = [f"__row{number}" for number in range(len(stretches))]
        query = text.select(list(zip(current, columns, strict=True)))
        calls = []
        for number, stretch in enumerate(stretches):
            ready = []
            while done[number] < len(stretch.steps) and not stretch.steps[done[number]].runs_in_spark:
                ready.append(_calls(stretch, done[number]))
                done[number] += 1
            if ready:
                calls.append((number, tuple(ready)))
        current = list(columns)
        kinds = [stretch.steps[index - 1].fields for index, stretch in zip(done, stretches, strict=True)]
        yield Round(query, tuple(zip(columns, kinds, strict=True)), tuple(calls))


def _spark_is_next(stretch: SparkStretch, done: int) -> bool:
    return done < len(stretch.steps) and stretch.steps[done].runs_in_spark


def _calls(stretch: SparkStretch, index: int) -> NativeStep:
    compiled = native_step(stretch.steps[index])
    assert compiled is not None
    return compiled


class _Query:
    """A query that grows step by step. ``held``: its columns."""

    def __init__(self, held: list[str]) -> None:
        self.text, self.held = "__wide", list(held)

    def select(self, columns: list[tuple[str, str]]) -> str:
        outputs = [f"{old} AS {new}" for old, new in columns]
        return f"SELECT {', '.join([*_PASSED, *outputs])} FROM {self.text}"

    def linear(self, parts: Sequence[tuple[Step, str, str, str]]) -> None:
        """Add a column per (step, current, result, alias): the output of the `Linear` step for the column
        ``current``."""
        named, made = [], []
        for step, current, result, alias in parts:
            assert isinstance(step, Linear)
            names = [f"{current}.c{column} AS {quoted(name)}" for column, name in enumerate(step.input.columns)]
            named += [f"struct({', '.join(names)}) AS {alias}"] if names else []
            guard = f"{current} IS NOT NULL"
            if step.predicate is not None:
                guard += f" AND ({sql(step.predicate, alias)})"
            values = [sql(output.expression, alias) for output in step.outputs]
            made.append(f"{_row(guard, values, current)} AS {result}")
        self.text = f"(SELECT {', '.join([*self.held, *named])} FROM {self.text})"
        self.text = f"(SELECT {', '.join([*self.held, *made])} FROM {self.text})"
        self._replace([(current, result) for _, current, result, _ in parts])

    def generate(self, step: Step, current: str, result: str) -> None:
        """Add the column ``result``: the output of a `Generate` step for the column ``current``."""
        assert isinstance(step, Generate)
        width = len(step.input.columns)
        names = [f"{current}.c{index} AS {quoted(name)}" for index, name in enumerate(step.input.columns)]
        view, guard, made = _lateral(step, current)
        named = f"(SELECT {', '.join(['*', *names])} FROM {self.text}) {view}"
        row = _row(guard, [f"{current}.c{index}" for index in range(width)] + made, current)
        self.text = f"(SELECT {', '.join(self.held)}, {row} AS {result} FROM {named})"
        self._replace([(current, result)])

    def _replace(self, made: Sequence[tuple[str, str]]) -> None:
        """Take over the new columns of (current, result) pairs. A ``current`` that no other path reads is dropped."""
        read = {current for current, _ in made if current.startswith("__mid")}
        self.held = [name for name in self.held if name not in read] + [result for _, result in made]


def _row(guard: str, values: Sequence[str], current: str) -> str:
    """The expression of a step's output row, NULL where ``guard`` does not hold."""
    fields = "".join(f"'c{index}', {value}, " for index, value in enumerate(values))
    return f"CASE WHEN {guard} THEN named_struct({fields}'_diff', {current}._diff) END"


def _named(number: int, channel: int) -> str:
    """The name of the struct that gives a path's columns the step's names. It is unique, since paths may share
    names."""
    return f"__named{number}_{channel}"


def failing_channel(text: str) -> int | None:
    """Return the channel of the path whose expression failed, from the text of Spark's error; None if the text lacks
    it."""
    found = re.search(r"__named\d+_(\d+)", text)
    return int(found[1]) if found else None


def _lateral(step: Generate, current: str) -> tuple[str, str, list[str]]:
    """Return the LATERAL VIEW, the condition under which its row counts, and the values of the generator's columns."""
    function, arguments, types = step.function, [sql(each) for each in step.arguments], step.made
    there = f"{current} IS NOT NULL"

    def view(generator: str, argument: str, others: Sequence[str], count: int) -> str:
        given = ", ".join([f"CASE WHEN {there} THEN {argument} END", *others])
        return f"LATERAL VIEW OUTER {generator}({given}) __made AS {', '.join(f'__made{i}' for i in range(count))}"

    names = [f"__made{index}" for index in range(len(types))]
    if function == "json_tuple":
        return view(function, arguments[0], arguments[1:], len(types)), there, names
    found = there if step.outer else f"{there} AND __made0 IS NOT NULL"
    if function == "explode":
        return (
            view("posexplode", arguments[0], (), len(types) + 1),
            found,
            [f"__made{i + 1}" for i in range(len(types))],
        )
    if function == "posexplode":
        return view("posexplode", arguments[0], (), len(types)), found, names
    if function == "variant_explode":
        made = ["__made0", "__made1.key", "__made1.value"]
        return view("posexplode", _VARIANT.format(arguments[0]), (), 2), found, made
    fields = ",".join(f"f{index}:{ddl_type(field.type)}" for index, field in enumerate(types))
    whole = arguments[0] if function == "inline" else _stacked(step)
    # A cast of structs goes by position, so it renames the fields to known names.
    rows = f"CAST({whole} AS array<struct<{fields}>>)"
    return view("posexplode", rows, (), 2), found, [f"__made1.f{index}" for index in range(len(types))]


def _stacked(step: Generate) -> str:
    """``stack(n, a, b, c, …)`` as an array of rows, NULLs at its end."""
    number, *given = step.arguments
    assert isinstance(number, Literal) and isinstance(number.value, int)
    width, values = len(step.made), [sql(each) for each in given]
    values += ["NULL"] * (number.value * width - len(values))
    rows = [values[index * width : (index + 1) * width] for index in range(number.value)]
    structs = [", ".join(f"'f{index}', {value}" for index, value in enumerate(row)) for row in rows]
    return f"array({', '.join(f'named_struct({each})' for each in structs)})"
