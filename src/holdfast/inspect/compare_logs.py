"""Comparing a view of two logs, such as a flow's and its branch's, with or without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from holdfast.errors import DeclarationError, HoldfastError, UnknownName
from holdfast.foundation import arguments
from holdfast.foundation.nearest_name import did_you_mean
from holdfast.inspect.log_reader import LogReader
from holdfast.inspect.places import Named
from holdfast.log.branch_location import BranchLocation
from holdfast.log.branches import directory_of, read_branches
from holdfast.log.location import open_location
from holdfast.results.comparison import Comparison
from holdfast.task.log_comparison import compare_logs
from holdfast.task.view_log import ViewLog

MAIN = "main"
"""The name of the flow itself beside its branches."""


def compared(
    here: tuple[ViewLog, int],
    there: tuple[ViewLog, int],
    view: str,
    at: int,
    names: tuple[str, str],
    by: str | Sequence[str] | None = None,
) -> Comparison:
    """The difference of two logs, each read as of the epoch given with it: their contents as of epoch ``at``.
    ``names``: the names of the two lines, for messages. Raises `DeclarationError` if their columns differ."""
    columns = [field.name for field in here[0].fields]
    kinds = [[(field.name, field.type) for field in log.fields] for log, _ in (here, there)]
    if kinds[0] != kinds[1]:
        said = [", ".join(f"{name} {kind}" for name, kind in each) for each in kinds]
        raise DeclarationError(
            f"view '{view}': in {names[0]} its columns are ({said[0]}), in {names[1]} ({said[1]}); rows of different "
            "columns cannot be compared",
            view=view,
        )
    if by is None:
        key = [columns[place] for place in here[0].spec.key]
        key = key if len(key) < len(columns) else []
    else:
        key = [by] if isinstance(by, str) else list(by)
    for each in key:
        arguments.text(f"view '{view}'", "by", each, "a column")
        if each not in columns:
            raise UnknownName(f"view '{view}': column '{each}' not found{did_you_mean(each, columns)}", name=each)
    rows = compare_logs(*here, *there, [columns.index(each) for each in key])
    return Comparison(view, at, *names, tuple(key), rows)


def compare_branches(
    log: Named,
    here: str,
    there: str,
    view: str,
    at: int | None = None,
    by: Sequence[str] | None = None,
    since: int | None = None,
) -> Iterator[Comparison]:
    """The differences of a view between two lines of a log, each ``main`` or the name of a branch, as of epoch ``at``
    (by default the last epoch that both have). With ``since``: a comparison for each epoch after it."""
    first, second = (LogReader(branch_of(log, name), (), [view]) for name in (here, there))
    with first, second:
        last = min(first.epoch, second.epoch) if at is None else at

        def beside(at: int, mine: ViewLog, then: int) -> Comparison:
            mine.check(view, then)
            try:
                return second.with_log(view, at, partial(compare, at, (mine, then)))
            except _OfTheOther as found:
                raise found.error from None
            except HoldfastError as error:
                raise _OfTheOther(error) from error

        def compare(at: int, mine: tuple[ViewLog, int], others: ViewLog, then: int) -> Comparison:
            others.check(view, then)
            try:
                return compared(mine, (others, then), view, at, (here, there), by)
            except HoldfastError as error:
                if str(error.fields.get("path", "")).startswith(mine[0].directory):
                    raise _OfTheOther(error) from error
                raise

        for epoch in [last] if since is None else range(since + 1, last + 1):
            try:
                found = first.with_log(view, epoch, partial(beside, epoch))
            except _OfTheOther as other:
                raise other.error from None
            yield found


class _OfTheOther(Exception):
    """Carries an error of one line through the reader of the other line, which would otherwise handle it as its own."""

    def __init__(self, error: HoldfastError) -> None:
        super().__init__(error)
        self.error = error


def branch_of(log: Named, name: str) -> Named:
    """The log of a branch; for ``main`` the given log. Raises `UnknownName`."""
    location = open_location(log)
    if name == MAIN:
        return log
    known = read_branches(location)
    if name not in known:
        raise UnknownName(f"log {location.uri}: branch '{name}' not found{did_you_mean(name, known)}", name=name)
    path = location.local()
    return BranchLocation(location, name) if path is None else directory_of(path, name)
