"""The classifier of observed output: which of the five recovery types a crash led to.

O_f is the output delivered before the crash, O′ the output delivered after it, O_e the output of a run without a crash.
Recovery is *precise* if O_f + O′ = O_e. The other types differ in how that equation fails:

    type                  before      after            what is wrong
    precise               t1 t2 t3    t4 t5 t6         nothing
    gap                   t1 t2 t3    t5 t6            rows are missing, and none came twice
    rollback-repeating    t1 t2 t3    t2 t3 t4 …       rows came again, the same as before
    rollback-convergent   t1 t2 t3    t′2 t′3 t4 …     rows came again, other than before; without those it is O_e
    rollback-divergent    t1 t2 t3    t′2 t′3 t′4 …    without the rows that came again it is still not O_e

"Came again" needs an identity: t′2 is a second t2. With ``key`` (columns, positions, or a function of a row) the
identity is the key's value: of the rows with one key, the first ones, as many as O_e has, count as delivered, and the
rest came again. Without a key a row is its own identity: a row that O_e lacks counts as another form of a missing row,
one for one, and the remaining ones came again.

Missing rows make a gap, whatever else differs after them: state that begins anew gives other rows (t′5). If no row is
missing and none came again, but a row differs from O_e, the recovery is divergent.

Rows of one epoch have no order, so the equation is one of bags. With ``ordered`` it is one of sequences, and rows that
are all there in another order are divergent.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from holdfast.guarantees.prediction import RecoveryType

Rows: TypeAlias = "pa.Table | Iterable[Any]"
"""An output: an Arrow table, or rows (tuples, mappings, or values of any other kind)."""

Key: TypeAlias = "str | int | Sequence[str | int] | Callable[[Any], Hashable]"

_GUARANTEES = {RecoveryType.PRECISE: "exactly-once", RecoveryType.GAP: "at-most-once"}
_SHOWN = 5


@dataclass(frozen=True)
class ObservedRecovery:
    """The effect of a crash on an output, with the rows that show it."""

    recovery: RecoveryType
    missing: tuple[Any, ...] = ()
    """Rows of the run without a crash that were not delivered in any form."""

    repeated: tuple[Any, ...] = ()
    """Rows that came again, the same as before."""

    changed: tuple[Any, ...] = ()
    """Rows that came again, but changed."""

    wrong: tuple[tuple[Any, Any], ...] = ()
    """(expected, delivered): rows whose first delivery differs from the run without a crash. None: no row of that
    identity."""

    moved: bool = False
    """Whether the rows are right, but their order is not."""

    @property
    def guarantee(self) -> str:
        """The guarantee that this type of recovery keeps."""
        return _GUARANTEES.get(self.recovery, "at-least-once")

    def __str__(self) -> str:
        parts = [
            _listed("missing", self.missing),
            _listed("came again", self.repeated),
            _listed("came again, changed", self.changed),
            _listed("wrong", [f"{found!r} for {expected!r}" for expected, found in self.wrong], str),
            "in another order" if self.moved else "",
        ]
        said = "; ".join(part for part in parts if part)
        return f"{self.recovery.value}: {said}" if said else self.recovery.value


def classify(
    before: Rows, after: Rows, reference: Rows, *, key: Key | None = None, ordered: bool = False
) -> ObservedRecovery:
    """Return the recovery type and the rows that show it. ``before`` and ``after``: the output delivered before and
    after the crash. ``reference``: the output of a run without a crash.

    ``key``: the identity of a row: names of columns (of tables and mappings), positions (of tuples), or a function.
    ``ordered``: the order of rows counts. Raises `ValueError` if the key is none of these.
    """
    identity = _identity(key)
    delivered = [*_rows(before), *_rows(after)]
    expected = _rows(reference)
    found = _by_rows(delivered, expected) if key is None else _by_key(delivered, expected, identity)
    again = bool(found.repeated or found.changed)
    if found.missing and not again:
        kind = RecoveryType.GAP
    elif found.missing or found.wrong:
        kind = RecoveryType.DIVERGENT
    elif ordered and not _same_order(found.kept, expected):
        return ObservedRecovery(
            RecoveryType.DIVERGENT, repeated=_t(found.repeated), changed=_t(found.changed), moved=True
        )
    elif found.changed:
        kind = RecoveryType.CONVERGENT
    elif found.repeated:
        kind = RecoveryType.REPEATING
    else:
        kind = RecoveryType.PRECISE
    return ObservedRecovery(kind, _t(found.missing), _t(found.repeated), _t(found.changed), _t(found.wrong))


@dataclass(frozen=True)
class _Compared:
    """The rows of a delivered output, sorted into kinds."""

    kept: list[Any]
    """The delivered rows without those that came again, in order."""

    missing: list[Any]
    repeated: list[Any]
    changed: list[Any]
    wrong: list[tuple[Any, Any]]


def _by_key(delivered: list[Any], expected: list[Any], identity: Callable[[Any], Hashable]) -> _Compared:
    wanted: defaultdict[Hashable, list[Any]] = defaultdict(list)
    for row in expected:
        wanted[identity(row)].append(row)
    came: defaultdict[Hashable, list[Any]] = defaultdict(list)
    found = _Compared([], [], [], [], [])
    for row in delivered:
        place = identity(row)
        forms = {_form(each) for each in came[place]}
        # A row whose identity O_e lacks is wrong the first time, and after that came again.
        if len(came[place]) < max(1, len(wanted[place])):
            came[place].append(row)
            found.kept.append(row)
        else:
            (found.repeated if _form(row) in forms else found.changed).append(row)
    for place, rows in wanted.items():
        left, extra = _difference(came[place], rows)
        paired = min(len(left), len(extra))
        found.wrong.extend(zip(left[:paired], extra[:paired], strict=True))
        found.wrong.extend((None, row) for row in extra[paired:])
        found.missing.extend(left[paired:])
    return found


def _by_rows(delivered: list[Any], expected: list[Any]) -> _Compared:
    left = Counter(map(_form, expected))
    seen: set[Hashable] = set()
    found = _Compared([], [], [], [], [])
    strange = []
    for row in delivered:
        form = _form(row)
        if left[form] > 0:
            left[form] -= 1
            found.kept.append(row)
        elif form in seen:
            found.repeated.append(row)
        else:
            strange.append(row)
        seen.add(form)
    lacking = _difference([row for row in delivered], expected)[0]
    paired = min(len(lacking), len(strange))
    # Pair the last ones: rows that came again are delivered before the first new row.
    found.changed.extend(strange[: len(strange) - paired])
    found.wrong.extend(zip(lacking[len(lacking) - paired :], strange[len(strange) - paired :], strict=True))
    found.missing.extend(lacking[: len(lacking) - paired])
    return found


def _difference(delivered: list[Any], expected: list[Any]) -> tuple[list[Any], list[Any]]:
    """(expected and not delivered, delivered and not expected), as bags."""
    wanted: defaultdict[Hashable, deque[Any]] = defaultdict(deque)
    for row in expected:
        wanted[_form(row)].append(row)
    extra = []
    for row in delivered:
        if wanted[_form(row)]:
            wanted[_form(row)].popleft()
        else:
            extra.append(row)
    left = Counter({form: len(rows) for form, rows in wanted.items()})
    lacking = []
    for row in reversed(expected):
        if left[_form(row)] > 0:
            left[_form(row)] -= 1
            lacking.append(row)
    return lacking[::-1], extra


def _same_order(delivered: list[Any], expected: list[Any]) -> bool:
    return list(map(_form, delivered)) == list(map(_form, expected))


def _rows(output: Rows) -> list[Any]:
    return list(output.to_pylist() if isinstance(output, pa.Table) else output)


def _identity(key: Key | None) -> Callable[[Any], Hashable]:
    if key is None:
        return _form
    if callable(key):
        return lambda row: _form(key(row))
    places = [key] if isinstance(key, str | int) else list(key) if isinstance(key, list | tuple) else []
    if not places or not all(isinstance(place, str | int) and not isinstance(place, bool) for place in places):
        raise ValueError(f"classify: key must be columns, positions or a function, not {key!r}")
    return lambda row: tuple(_form(row[place]) for place in places)


def _form(value: Any) -> Hashable:
    """A hashable form of a value: equal rows have equal forms, and NaN equals NaN."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value
    if isinstance(value, Mapping):
        return tuple(sorted((str(name), _form(each)) for name, each in value.items()))
    if isinstance(value, list | tuple):
        return tuple(map(_form, value))
    return value  # type: ignore[no-any-return]  # what cannot be hashed raises where it is used


def _listed(what: str, rows: Sequence[Any], text: Callable[[Any], str] = repr) -> str:
    if not rows:
        return ""
    more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
    return f"{what}: {', '.join(map(text, rows[:_SHOWN]))}{more}"


def _t(rows: list[Any]) -> tuple[Any, ...]:
    return tuple(rows)
