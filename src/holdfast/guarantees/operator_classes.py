"""The class of each operator, draw and source: one table, with four classes.

What a crash can do to output depends on the rows that an operator makes of input that it is given *again*. If the
lineage of an epoch survives, the epoch is computed again with the same input, clock, seed and answers, and every
operator makes the same rows (invariant 1): then the class does not matter. It matters if the lineage is lost: then
input is taken again, but cut into other epochs, at another clock and with another seed.

| class | its output if the lineage is lost |
|---|---|
| repeatable | identical rows, however the input is cut |
| convergent-capable | maybe other rows on the way, which add up to the same in the end |
| deterministic | the same rows only for the same epochs: a part of the result depends on when a row came |
| arbitrary | depends on chance, the clock or an external system |

Each class includes the ones above it. A view has the worst class of its operators.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from holdfast.foundation import arguments
from holdfast.plan.drawing import Box, Drawing


class OperatorClass(Enum):
    """The four classes, the best first."""

    REPEATABLE = "repeatable"
    CONVERGENT = "convergent-capable"
    DETERMINISTIC = "deterministic"
    ARBITRARY = "arbitrary"

    @property
    def rank(self) -> int:
        """0 for the best."""
        return list(OperatorClass).index(self)


@dataclass(frozen=True)
class Classified:
    """An operator, draw or source, with its class and the reason."""

    what: str
    operator_class: OperatorClass
    reason: str


_R, _C, _D, _A = OperatorClass
_GROUP = "emits the old and the new result of each group it touches: how often depends on how input is cut into epochs"
TABLE: dict[str, tuple[OperatorClass, str]] = {
    # Operators that need only the change.
    "source": (_R, "gives the rows of its offers, the same whenever they are read"),
    "linear": (_R, "filters, computes and unites row by row: a row's result depends on that row alone"),
    "log": (_R, "keeps the rows of a view or an input, and passes them on as they are"),
    # Operators that need their trace: functions of the bag of all rows so far.
    "retracting source": (_C, "a row that comes and goes in one epoch leaves nothing, in two it leaves both"),
    "aggregate": (_C, _GROUP),
    "join": (_C, "emits pairs when their second half comes: the pairs are the same, those that come and go may not be"),
    "outer": (_C, "emits a row without a partner until one comes, if that is in another epoch"),
    "semi": (_C, "emits a row when its first partner comes, and takes it back with the last, as often as that happens"),
    "threshold": (_C, "emits a row when its bound passes it: a bound may pass it several times, or not at all"),
    "set": (_C, "emits a row when its count passes a bound: it may pass it several times, or not at all"),
    "window": (_C, "emits old and new values of each partition it touches, as often as it is touched"),
    "bucket": (_C, "emits rows that enter and leave the first ones of a bucket on the way"),
    "global": (_C, "emits rows that enter and leave the first ones on the way"),
    "loop": (_C, "emits what each change derives and takes back: the fixpoint is the same, the way to it may not be"),
    "latest": (_C, "emits each version that was the latest of its key at the end of an epoch"),
    "replaced": (_C, "emits the difference of two versions: one that is replaced in the same epoch is never seen"),
    # Operators and sources whose result depends on when a row came.
    "pushed source": (_A, "rows that code pushed are in no place from which they could be taken again"),
    "temporal": (_D, "rows come and go by the clock of the epoch: one that is taken again later may have expired"),
    "unique": (_D, "of records with one id the first counts: which one that is depends on how input is cut"),
    # Draws.
    "clock": (_A, "the clock of the epoch, another one when the row is taken again"),
    "rand": (_A, "chance: drawn from the seed of the epoch"),
    "randn": (_A, "chance: drawn from the seed of the epoch"),
    "uuid": (_A, "chance: drawn from the seed of the epoch"),
    "udf": (_A, "asks a function that is marked nondeterministic: what it answers is known from the lineage alone"),
}
"""Kind of operator, draw or source → its class, and why."""

_OTHER = (_D, "is not in the table: a function of its state, its input and the lineage, as every operator is")


def classify(kind: str, what: str = "") -> Classified:
    """The class of a kind of operator, or of a draw (``rand``, ``udf:name``). ``what`` names it in messages."""
    key = "udf" if kind.startswith("udf:") else kind
    return Classified(what or kind, *TABLE.get(key, _OTHER))


def classes_of(whole: Drawing, view: str, sources: Mapping[str, str] | None = None) -> tuple[Classified, ...]:
    """The classes of the operators, draws and sources of a view, sources first. ``sources``: the kind of each source
    that is not plain: "retracting source" or "pushed source"."""
    shown = whole.behind(view)
    found = [each for box in shown.boxes for each in _of_box(box, sources or {})]
    found += [classify("linear", line.text) for line in shown.lines if line.text]
    return tuple(found)


def _of_box(box: Box, sources: Mapping[str, str]) -> list[Classified]:
    if box.kind == "source":
        return [classify(sources.get(box.id, "source"), box.title)]
    if box.nondeterministic:
        return [classify(function, box.title) for function in box.nondeterministic]
    return [classify(box.kind, box.title)]


def worst(classes: Iterable[Classified | OperatorClass]) -> Classified:
    """The first of the worst classes: it decides for a view."""
    named = []
    if isinstance(classes, str) or not isinstance(classes, Iterable):
        arguments.refuse("predict", "classes", "operators or their classes", classes)
    for each in classes:
        if not isinstance(each, Classified | OperatorClass):
            arguments.refuse("predict", "classes", "operators or their classes", each)
        named.append(
            each if isinstance(each, Classified) else Classified(f"an operator that is {each.value}", each, "")
        )
    return max(named, key=lambda each: each.operator_class.rank, default=classify("linear"))
