"""The options of a source whose records count once: ``unique``, ``within`` and ``false_positives``, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.coordinator.retention import parse_retention
from holdfast.errors import DeclarationError
from holdfast.foundation import arguments
from holdfast.foundation.nearest_name import did_you_mean
from holdfast.operators.unique import Unique, Within
from holdfast.plan import nodes


@dataclass(frozen=True)
class UniqueIds:
    """The columns that are a record's id, how long an id is remembered (None: for ever), and the share of new ids for
    which the Bloom filters may say "maybe"."""

    columns: tuple[str, ...]
    within: Within | None
    rate: float

    def over(self, source: nodes.Source, retracts: bool) -> Unique:
        """Plan the records of ``source`` that count. Raises `DeclarationError` if a column is missing or cannot be
        compared."""
        for name in self.columns:
            if name not in source.columns:
                raise DeclarationError(
                    f"source '{source.name}': unique: column '{name}' not found{did_you_mean(name, source.columns)}",
                    source=source.name,
                    column=name,
                )
            if "map<" in source.types[name]:
                raise DeclarationError(
                    f"source '{source.name}': unique: column '{name}' is of type {source.types[name]}, and maps cannot "
                    "be compared; name another column",
                    source=source.name,
                    column=name,
                )
        return Unique(source, self.columns, self.within, retracts, self.rate)


def parse_unique(
    subject: str, unique: object, within: object, false_positives: object, expires: object, key: object = None
) -> UniqueIds | None:
    """Check the options of a source. Return None if its records have no ids. Raises `DeclarationError`."""
    if unique is None:
        if within is not None:
            raise DeclarationError(f"{subject}: within={within!r} needs unique: the column that is a record's id")
        return None
    columns = [unique] if isinstance(unique, str) else unique
    if not isinstance(columns, Sequence) or isinstance(columns, bytes) or not columns:
        arguments.refuse(subject, "unique", "a column, or several", unique)
    names = tuple(arguments.text(subject, "unique", name, "a column, or several") for name in columns)
    if len(set(names)) < len(names):
        arguments.refuse(subject, "unique", "each column once", unique)
    rate = arguments.number(subject, "false_positives", false_positives, 1e-9, "a share")
    if rate > 0.5:
        arguments.refuse(subject, "false_positives", "a share from 1e-9 to 0.5", false_positives)
    if key is not None:
        raise DeclarationError(
            f"{subject}: unique and key cannot be combined: a row that replaces that of its key may come again and "
            "changes nothing"
        )
    if expires is not None:
        raise DeclarationError(
            f"{subject}: unique and expires cannot be combined; let a view drop the rows that are too old: "
            "WHERE ts > now() - INTERVAL 1 DAY"
        )
    return UniqueIds(names, _within(subject, within), rate)


def _within(subject: str, within: object) -> Within | None:
    if within is None:
        return None
    try:
        found = parse_retention(within)
    except ValueError:
        found = None
    if found is not None and found.epochs is not None and found.epochs >= 1:
        return Within(found.epochs, True)
    if found is not None and found.seconds:
        return Within(round(found.seconds * 1e6), False)
    arguments.refuse(subject, "within", "a number of epochs from 1 on, or a time such as '1h'", within)
