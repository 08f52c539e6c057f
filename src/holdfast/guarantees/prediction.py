"""What a crash can do to output: a pure function of operator classes, strategy and sink.

It depends first on the **fate** of an epoch whose output a sink may have seen when the driver died:

* *kept*: its lineage survives. The epoch is computed again exactly, whatever the operators are.
* *taken again*: its lineage is lost. Its input is taken again, cut into other epochs, and the output depends on the
  operators.
* *skipped*: the epoch is left out.

Then it depends on the sink. A transactional sink says which epoch it has, and is given the later ones. A de-duplicating
sink drops rows by their ids, which are the same for an epoch that was kept. An append-only sink takes all that it is
given, and is given the last epoch again, since it is unknown whether it has that epoch.

| fate | transactional | de-duplicating | append |
|---|---|---|---|
| kept | precise | precise | rollback-repeating |
| taken again | by operators | by operators | by operators |
| skipped | gap | gap | gap |

By operators: repeatable → rollback-repeating, convergent-capable → rollback-convergent, others → rollback-divergent.
(De-duplication does not help there: an id contains the epoch, and the row comes in another epoch.)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeAlias

from holdfast.foundation import arguments
from holdfast.guarantees.operator_classes import Classified, OperatorClass, worst
from holdfast.guarantees.strategy import OnLoss, Strategy, Survives

Failure: TypeAlias = Literal["executor", "process", "host"]
"""What is lost: executors with the state that they kept; the driver and executors; or also the driver's working
directory."""


class RecoveryType(Enum):
    """The five types of recovery: how all output, before and after a crash, compares with a run without a crash."""

    PRECISE = "precise"
    GAP = "gap"
    REPEATING = "rollback-repeating"
    CONVERGENT = "rollback-convergent"
    DIVERGENT = "rollback-divergent"


class SinkKind(Enum):
    """What a sink does for exactness."""

    TRANSACTIONAL = "transactional"
    """The sink says which epoch it has, and takes rows and lineage in one commit."""

    DEDUPLICATING = "de-duplicating"
    """The sink cannot say which epoch it has, and drops rows whose id it has already."""

    APPEND = "append"
    """The sink takes all rows that it is given."""


@dataclass(frozen=True)
class Prediction:
    """What a crash can do to output, and why."""

    recovery: RecoveryType
    why: str
    spoiled_by: Classified | None = None
    """The operator that prevents a better type of recovery; None if the reason is not an operator."""

    def __str__(self) -> str:
        return f"{self.recovery.value}: {self.why}"


class _Fate(Enum):
    KEPT = "kept"
    TAKEN_AGAIN = "taken again"
    SKIPPED = "skipped"


_BY_OPERATORS = {
    OperatorClass.REPEATABLE: RecoveryType.REPEATING,
    OperatorClass.CONVERGENT: RecoveryType.CONVERGENT,
    OperatorClass.DETERMINISTIC: RecoveryType.DIVERGENT,
    OperatorClass.ARBITRARY: RecoveryType.DIVERGENT,
}


def predict(
    classes: Iterable[Classified | OperatorClass],
    strategy: Strategy,
    sink: SinkKind,
    *,
    failure: Failure = "process",
    anchored: bool = False,
) -> Prediction:
    """What a crash can do to the output of a view with these operators, under a strategy, at a kind of sink.

    ``failure``: ``"executor"``: executors are killed, the state that they kept is lost, and the driver lives;
    ``"process"``: driver and executors are killed; ``"host"``: the driver's working directory is lost, too.
    ``anchored``: whether a transactional sink is declared before this sink: then it holds the lineage for both."""
    if not isinstance(strategy, Strategy):
        arguments.refuse("predict", "strategy", "a Strategy such as hf.nosync()", strategy)
    if not isinstance(sink, SinkKind):
        arguments.refuse("predict", "sink", "a SinkKind", sink)
    arguments.one_of("predict", "failure", failure, ("executor", "process", "host"))
    arguments.flag("predict", "anchored", anchored)
    if failure == "executor":
        spoiler = worst(classes)
        if strategy.on_loss is OnLoss.LEAVE_OUT and spoiler.operator_class is not OperatorClass.REPEATABLE:
            # (If a new executor finds the layers on the host, recovery is precise; but that is not guaranteed.)
            said = f"nothing is copied: state that an executor kept goes with it, and begins anew; {spoiler.what}"
            return Prediction(RecoveryType.DIVERGENT, said, spoiler)
        said = "output leaves when its epoch has run; one that was cut short runs again, and nothing of it had left"
        return Prediction(RecoveryType.PRECISE, said)
    fate, why = _fate(strategy, sink, failure, anchored)
    if fate is _Fate.SKIPPED:
        return Prediction(RecoveryType.GAP, why)
    if fate is _Fate.TAKEN_AGAIN:
        spoiler = worst(classes)
        kind = spoiler.operator_class
        reason = f" ({spoiler.reason})" if spoiler.reason else ""
        said = f"{why}; {spoiler.what}: {kind.value}{reason}"
        return Prediction(_BY_OPERATORS[kind], said, None if kind is OperatorClass.REPEATABLE else spoiler)
    match sink:
        case SinkKind.TRANSACTIONAL:
            return Prediction(RecoveryType.PRECISE, f"{why}, and the sink says what it has")
        case SinkKind.DEDUPLICATING:
            return Prediction(RecoveryType.PRECISE, f"{why}, and the sink drops rows whose id it has")
        case SinkKind.APPEND:
            said = f"{why}, but the sink cannot say what it has: what it was given last is given again, the same rows"
            return Prediction(RecoveryType.REPEATING, said)


def _fate(strategy: Strategy, sink: SinkKind, failure: Failure, anchored: bool) -> tuple[_Fate, str]:
    """The fate of epochs whose output a sink may have seen, and the reason."""
    if strategy.on_loss is OnLoss.LEAVE_OUT and failure == "host" and sink is not SinkKind.TRANSACTIONAL:
        return (
            _Fate.TAKEN_AGAIN,
            "nothing is kept, so the place in the input is lost with the host: it is taken again from the beginning",
        )
    if strategy.on_loss is OnLoss.LEAVE_OUT:
        return _Fate.SKIPPED, "nothing is kept: the input of the epoch at hand is skipped, state that is gone is empty"
    if strategy.deliverable(1, 0) == 0:
        return _Fate.KEPT, "output leaves when its epoch is safe"
    if strategy.survives is Survives.NOTHING and not strategy.forwards:
        return (
            _Fate.TAKEN_AGAIN,
            "the flow goes back to its last snapshot, and takes input again whose output had left",
        )
    if failure == "process":
        return _Fate.KEPT, "the lineage of every epoch survives, so epochs are computed again bit for bit the same"
    if strategy.forwards and (sink is SinkKind.TRANSACTIONAL or anchored):
        return _Fate.KEPT, "lineage that is not durable travels with output, so epochs are computed again bit for bit"
    return (
        _Fate.TAKEN_AGAIN,
        "the lineage of epochs that are not safe is lost with the host, and no sink holds it: their input is taken "
        "again",
    )
