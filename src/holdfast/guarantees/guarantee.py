"""The guarantee that a user wants for a flow's output, and whether a strategy with given sinks can keep it.

| guarantee | a row that leaves | kinds of recovery that keep it | chosen alone |
|---|---|---|---|
| exactly-once | once | precise | `nosync`; `synchronous_log` where a sink de-duplicates by id |
| at-least-once | once or more | precise, rollback | `nosync` |
| at-most-once | once or never | precise, gap | `gap` |

A guarantee is judged by the worst failure, including the loss of the driver's host; at-most-once is judged by killed
processes only, since a strategy that keeps nothing loses its position in the input with the host. A guarantee that no
sink could keep is refused when the flow is made; others are checked when a sink is declared.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from holdfast.errors import DeclarationError
from holdfast.foundation import arguments
from holdfast.guarantees.operator_classes import Classified, OperatorClass
from holdfast.guarantees.prediction import Failure, Prediction, RecoveryType, SinkKind, predict
from holdfast.guarantees.strategies import Gap, NoSync, SynchronousLog
from holdfast.guarantees.strategy import Strategy

Guarantee: TypeAlias = Literal["exactly-once", "at-least-once", "at-most-once"]

_KEEPS: dict[str, frozenset[RecoveryType]] = {
    "exactly-once": frozenset({RecoveryType.PRECISE}),
    "at-least-once": frozenset(RecoveryType) - {RecoveryType.GAP},
    "at-most-once": frozenset({RecoveryType.PRECISE, RecoveryType.GAP}),
}
_CHOICES: dict[str, tuple[Strategy, ...]] = {
    "exactly-once": (NoSync(), SynchronousLog()),
    "at-least-once": (NoSync(),),
    "at-most-once": (Gap(),),
}
_FIXES = {
    "exactly-once": "give the sink a way to say what it has (hf.changelog, hf.foreach(…, seen=…), a Sink of your own "
    "with open() and lineage()), choose hf.synchronous_log(), or promise at-least-once",
    "at-least-once": "choose hf.nosync(), or promise at-most-once",
    "at-most-once": "choose hf.gap(), or promise at-least-once",
}
_FAILURES: dict[str, tuple[Failure, ...]] = {
    "exactly-once": ("process", "host"),
    "at-least-once": ("process", "host"),
    "at-most-once": ("process",),
}


def parse_guarantee(subject: str, value: object) -> Guarantee | None:
    """Check a guarantee that the user gave; None if none was given."""
    if value is None:
        return None
    arguments.one_of(subject, "guarantee", value, tuple(_KEEPS))
    return value  # type: ignore[return-value]  # it is one of them


def breaks(
    guarantee: Guarantee,
    strategy: Strategy,
    sink: SinkKind,
    classes: Iterable[Classified | OperatorClass] = (),
    anchored: bool = False,
) -> tuple[Failure, Prediction] | None:
    """The failure that can break a guarantee at a sink, and what it does to output; None if no failure can."""
    for failure in _FAILURES[guarantee]:
        found = predict(classes, strategy, sink, failure=failure, anchored=anchored)
        if found.recovery not in _KEEPS[guarantee]:
            return failure, found
    return None


def choose(guarantee: Guarantee, sinks: Iterable[SinkKind]) -> Strategy:
    """The cheapest strategy that keeps a guarantee with these sinks, which are in their order; if none does, the first
    choice for the guarantee."""
    kinds = list(sinks)
    for strategy in _CHOICES[guarantee]:
        holds = [SinkKind.TRANSACTIONAL in kinds[:index] for index in range(len(kinds))]
        if all(
            breaks(guarantee, strategy, *each) is None for each in zip(kinds, [()] * len(kinds), holds, strict=True)
        ):
            return strategy
    return _CHOICES[guarantee][0]


def check_possible(subject: str, guarantee: Guarantee, strategy: Strategy) -> None:
    """Raise `DeclarationError` if no sink could make the strategy keep the guarantee."""
    found = breaks(guarantee, strategy, SinkKind.TRANSACTIONAL)
    if found is not None:
        _refuse(subject, guarantee, strategy, None, *found)


def check_sink(
    subject: str,
    guarantee: Guarantee,
    strategy: Strategy,
    sink: SinkKind,
    classes: Iterable[Classified | OperatorClass] = (),
    anchored: bool = False,
) -> None:
    """Raise `DeclarationError` if the guarantee can be broken at a sink of this kind."""
    found = breaks(guarantee, strategy, sink, classes, anchored)
    if found is not None:
        _refuse(subject, guarantee, strategy, sink, *found)


def _refuse(
    subject: str,
    guarantee: Guarantee,
    strategy: Strategy,
    sink: SinkKind | None,
    failure: Failure,
    found: Prediction,
) -> None:
    when = "a crash" if failure == "process" else "the loss of the driver's host"
    raise DeclarationError(
        f"{subject}: {guarantee} cannot be kept with strategy {strategy}: {when} can make output {found}; "
        f"{_FIXES[guarantee]}",
        guarantee=guarantee,
        strategy=str(strategy),
        sink=None if sink is None else sink.value,
        recovery=found.recovery.value,
    )
