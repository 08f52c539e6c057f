"""docs/sql.md says what the oracle runs, and nothing else.

`make docs-sql` runs the cases and the constructs of `expected`, and then writes the file, from those that passed.
Otherwise the test fails if what is committed differs from the registry, whose examples are all cases that `test_cases`
runs, and from `expected`, which `test_constructs` runs.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from ..frontend.test_refused import REFUSED
from .cases import CASES, CONSTRUCTS, MANY, chosen, make
from .check import passed
from .data import SCHEMAS
from .expected import EXACT, FAMILIES, KEPT, Kept
from .registry import CHANGE, GROUP, SIDE, Construct
from .test_constructs import equal

PAGE = Path(__file__).parents[2] / "docs" / "sql.md"
_HEAD = """\
# What a view can be made of

Every line of these tables is run by the tests: the example as it stands, and the construct over others and under others
({pairs:,} pairs of constructs in `make test`, {many:,} in `make test-slow`) while rows come and go. After every
epoch the view equals Spark's batch result. This page is made from what those tests run (`make docs-sql`).

The cost of an epoch is

* **{change}**: it follows the rows that changed and the rows they match, not what is there already;
* **{group}**: it follows the rows of the groups (keys, partitions) that the change touches;
* **{side}**: it may follow a whole input, where one row can decide about all of the other side.

The examples read `orders({orders})` and `users({users})`. In some of them `rows` stands for
`{exact}`: rows whose order is certain.

Where Spark leaves the answer open, Holdfast gives one that a replay repeats: lists come sorted; `any_value`, `first`
and `last` give the least value; ties of `max_by`, `min_by`, `ORDER BY … LIMIT` and window functions are settled by the
values themselves. Scalar expressions are whatever Spark has, as Spark runs them. What cannot be kept up to date is
refused when the view is declared, with the construct and its place in the text; the last table has what is tested.
"""


_FAMILIES = (
    "Rows", "Joins", "Subqueries", "Set operations", "Aggregates", "Grouping", "Window functions", "Time",
    "Generators and nested values",
    "DataFrame verbs",
)  # fmt: skip


def page(constructs: list[Construct], kept: Collection[Kept]) -> str:
    """The whole of docs/sql.md."""
    pairs, many = ({chosen(number) for number in range(count) if len(chosen(number)) == 2} for count in (CASES, MANY))
    costs = {"change": CHANGE, "group": GROUP, "side": SIDE}
    parts = [_HEAD.format(pairs=len(pairs), many=len(many), exact=EXACT, **costs, **SCHEMAS)]
    assert {each.family for each in constructs} <= set(_FAMILIES)
    for family in (family for family in _FAMILIES if any(each.family == family for each in constructs)):
        rows = [
            f"| {_cell(each.name)} | yes | {each.cost} | `{_cell(each.example)}` |"
            for each in constructs
            if each.family == family
        ]
        parts.append(
            "\n".join([f"## {family}\n", "| construct | supported | cost | example |", "|---|---|---|---|", *rows, ""])
        )
    for family, listed in FAMILIES.items():
        rows = [
            f"| {_cell(each.name)} | {_cell(each.how)} | {each.cost} | `{_cell(each.sql.replace(EXACT, 'rows'))}` |"
            for each in listed
            if each in kept
        ]
        parts.append(
            "\n".join([f"## {family}\n", "| construct | kept how | cost | example |", "|---|---|---|---|", *rows, ""])
        )
    refused = dict.fromkeys((construct, marked.replace("^", "", 1)) for marked, construct in REFUSED)
    rows = [f"| {_cell(construct)} | no | | `{_cell(sql)}` |" for construct, sql in refused]
    parts.append(
        "\n".join(["## Refused\n", "| construct | supported | cost | example |", "|---|---|---|---|", *rows, ""])
    )
    return "\n".join(parts)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def test_the_page_on_sql_says_what_the_oracle_runs() -> None:
    if os.environ.get("HOLDFAST_WRITE_DOCS"):
        PAGE.write_text(page([each for number, each in enumerate(CONSTRUCTS) if number in passed], equal))
    assert PAGE.read_text() == page(CONSTRUCTS, KEPT), "docs/sql.md is not what the registry says; run `make docs-sql`"


def test_every_example_of_the_page_is_a_case_that_runs() -> None:
    for number, construct in enumerate(CONSTRUCTS):
        case = make(number)
        assert number < CASES
        assert construct.example in str(case)


def test_the_cases_hold_each_construct_alone_and_as_outer_and_inner_of_others() -> None:
    kinds = [chosen(number) for number in range(CASES)]
    for construct in CONSTRUCTS:
        assert (construct,) in kinds
        assert any(each[0] == construct for each in kinds if len(each) == 2), construct.name
        assert any(each[1] == construct for each in kinds if len(each) == 2), construct.name


def test_many_cases_hold_all_pairs() -> None:
    count = len(CONSTRUCTS)
    pairs = {chosen(number) for number in range(count + count * count)}
    assert len(pairs) == count + count * count


def test_a_case_is_the_same_whenever_it_is_made() -> None:
    for number in (7, 300, 4321):
        assert str(make(number)) == str(make(number))
