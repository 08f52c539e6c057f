"""From plans to a dataflow: operators, the paths between them, and the stages they run in.

The plans of several views are trees that share subtrees. Here they become one graph: a keyed node that occurs twice (by
fingerprint) is one operator; the linear steps between two keyed nodes are a *path*. Each view ends in a ``log``
operator, which keeps the view's rows; so does each source whose rows the log must keep.

Stages. Rows move between hosts only in an exchange, and all paths into a stage share one exchange. An operator runs in
the stage after its producers' stage, unless a producer's output is already spread by the operator's key: then it runs
in the same stage, in the same task, without an exchange. So the number of exchanges of an epoch is the length of the
longest chain of *different* keys, however many operators and views there are.

Positions. In a dataflow, columns are positions: an operator's key and arguments are positions in the rows that arrive
at its port. Column names have no meaning here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from holdfast.plan.answering import answer
from holdfast.plan.fingerprint import fingerprint, fingerprints
from holdfast.plan.nodes import Field, KeyedNode, KeyedPart, Linear, Node, Source, Step, Union
from holdfast.plan.walk import reachable


@dataclass(frozen=True)
class Path:
    """Rows from a producer (a source's name or an operator's id) through linear steps to a port of an operator."""

    producer: str
    steps: tuple[Step, ...]
    consumer: str
    port: int
    local: bool = False
    """Whether the consumer runs in the producer's own task, without an exchange."""

    catalyst: bool = False
    """Whether a step needs Spark's own expressions: then the path runs in Spark, between two tasks."""


@dataclass(frozen=True)
class Operator:
    """A keyed operator: what it computes (``node``, and which ``part`` of it), the id under which its state is kept,
    and the stage in which it runs. For a log, ``node`` is the node whose rows it keeps."""

    id: str
    part: KeyedPart
    node: Node
    arriving: tuple[tuple[Field, ...], ...]
    """For each port, the columns of the rows that arrive."""

    fields: tuple[Field, ...]
    name: str = ""
    """The view or source that the operator serves; if it serves several, the one declared first."""

    check: bool = False
    """Only for a log: whether it checks that no row is removed more often than it is there."""

    stage: int = 0

    @property
    def kind(self) -> str:
        return self.part.kind

    @property
    def keys(self) -> tuple[tuple[int, ...], ...]:
        return self.part.keys

    @property
    def ports(self) -> int:
        return len(self.part.keys)


@dataclass(frozen=True)
class Given:
    """Rows that are read from a source called ``name``, instead of being computed by ``node``."""

    name: str
    node: Node


@dataclass
class Dataflow:
    """All operators of a flow, each after its producers, and the paths between them."""

    operators: dict[str, Operator] = field(default_factory=dict)
    paths: list[Path] = field(default_factory=list)
    sources: dict[str, Source] = field(default_factory=dict)
    views: dict[str, str] = field(default_factory=dict)
    """View (or kept source) → id of the operator that holds its rows, usually a ``log``."""

    given: Mapping[str, Given] = field(default_factory=dict)
    """Fingerprint of a node → a source that has the node's rows. The node's inputs are not in the dataflow."""

    _indexed: tuple[list[Path], int, tuple[dict[str, list[Path]], dict[str, list[Path]]]] | None = field(
        default=None, repr=False, compare=False
    )
    """The list of paths that was indexed, its length at that time, and the index."""

    @property
    def stages(self) -> int:
        return max((operator.stage for operator in self.operators.values()), default=0)

    def into(self, consumer: str, port: int | None = None) -> list[Path]:
        return [path for path in self._ends[1].get(consumer, ()) if port in (None, path.port)]

    def out_of(self, producer: str) -> list[Path]:
        return list(self._ends[0].get(producer, ()))

    def ancestors(self, ids: set[str]) -> set[str]:
        """The operators and sources that ``ids`` depend on. An id of ``ids`` is included only if another depends on
        it."""
        into = self._ends[1]
        reached: set[str] = set()
        frontier = set(ids)
        while frontier:
            above = {path.producer for consumer in frontier for path in into.get(consumer, ())}
            frontier = above - reached
            reached |= above
        return reached

    @property
    def _ends(self) -> tuple[dict[str, list[Path]], dict[str, list[Path]]]:
        """The index: producer → its paths, and consumer → its paths."""
        if self._indexed is None or self._indexed[0] is not self.paths or self._indexed[1] != len(self.paths):
            ends: tuple[dict[str, list[Path]], dict[str, list[Path]]] = ({}, {})
            for path in self.paths:
                ends[0].setdefault(path.producer, []).append(path)
                ends[1].setdefault(path.consumer, []).append(path)
            self._indexed = (self.paths, len(self.paths), ends)
        return self._indexed[2]


def log_id(view_fingerprint: str, key: Sequence[int]) -> str:
    """The operator_id of a view's log. It depends only on the view's meaning and key, so a renamed view keeps its log,
    and two views with one meaning share a log."""
    return f"{view_fingerprint}-log" + "".join(f"-{position}" for position in key)


def build(
    views: Mapping[str, Node],
    kept_sources: Mapping[str, Node],
    is_native: Callable[[tuple[Step, ...]], bool],
    given: Sequence[Given] = (),
) -> Dataflow:
    """Build the dataflow of ``views`` (name → typed plan).

    ``kept_sources``: sources (or sources without their expired rows) whose rows are kept and checked. ``given``: nodes
    whose rows are read from sources instead of being computed; nodes that follow from their rows are read too."""
    flow = Dataflow(given={fingerprint(each.node): each for each in given})
    for name, node in kept_sources.items():
        if isinstance(node, KeyedNode) and node.parts[-1].keeps:
            _add_keeping(flow, name, node)
        else:
            _add_log(flow, name, node, tuple(range(len(node.columns))), check=True)
    for name, node in views.items():
        _add_log(flow, name, node, node.arrangement)
    for node in views.values():
        _share_bounds(flow, node)
    _name_operators(flow)
    flow.paths = [_placed(flow, path, is_native) for path in flow.paths]
    _assign_stages(flow)
    return flow


def _add_log(flow: Dataflow, name: str, node: Node, key: tuple[int, ...], *, check: bool = False) -> None:
    operator_id = log_id(fingerprint(node), key)
    flow.views[name] = operator_id
    if operator_id in flow.operators:
        return
    for producer, steps in _producers(flow, node):
        flow.paths.append(Path(producer, steps, operator_id, 0))
    title = f"{'input' if check else 'view'} {name}({', '.join(node.columns)})"
    part = KeyedPart("log", (key,), (key,), title, colour="#e9f7ec")
    flow.operators[operator_id] = Operator(operator_id, part, node, (node.fields,), node.fields, name, check)


def _add_keeping(flow: Dataflow, name: str, node: KeyedNode) -> None:
    """Add a source whose own operator keeps its rows, so that it needs no log operator."""
    operator_id = _operator(flow, node)
    flow.views[name] = operator_id
    if operator_id in flow.operators:
        flow.operators[operator_id] = replace(flow.operators[operator_id], name=name)


def _share_bounds(flow: Dataflow, view: Node) -> None:
    """Give each operator that several views share the bounds of all of them."""
    nodes = reachable(view)
    if not any(isinstance(each, KeyedNode) and each.is_bounded for each in nodes):
        return
    meanings = fingerprints(nodes)
    for each in nodes:
        if isinstance(each, KeyedNode) and each.is_bounded:
            operator = flow.operators.get(meanings[id(each)] + each.parts[-1].suffix)
            if operator is not None and isinstance(operator.node, KeyedNode):
                flow.operators[operator.id] = replace(operator, node=operator.node.bounded_with(each))


def _name_operators(flow: Dataflow) -> None:
    """Name each operator after the first view that depends on it. Errors in the operator name this view."""
    for view, log in flow.views.items():
        for operator_id in flow.ancestors({log}) & flow.operators.keys():
            operator = flow.operators[operator_id]
            if not operator.name:
                flow.operators[operator_id] = replace(operator, name=view)


def _producers(flow: Dataflow, node: Node) -> list[tuple[str, tuple[Step, ...]]]:
    """The (producer, linear steps) pairs whose changes together are the changes of ``node``. Adds what is missing."""
    if flow.given and (found := _from_given(flow, node)) is not None:
        return [found]
    if isinstance(node, Step):
        return [(producer, (*steps, node)) for producer, steps in _producers(flow, node.input)]
    if isinstance(node, KeyedNode):
        return [(_operator(flow, node), ())]
    if isinstance(node, Source):
        flow.sources[node.name] = node
        return [(node.name, ())]
    assert isinstance(node, Union)
    return [found for child in node.inputs for found in _producers(flow, child)]


def _from_given(flow: Dataflow, node: Node) -> tuple[str, tuple[Step, ...]] | None:
    """The given source with the rows of ``node``, and the step that computes them from it; None if there is none."""
    if (given := flow.given.get(fingerprint(node))) is not None:
        flow.sources[given.name] = Source(given.name, node.fields)
        return given.name, ()
    if not isinstance(node, Linear):
        return None
    below: Node = node
    while isinstance(below, Linear):
        below = below.input
        if fingerprint(below) in flow.given:
            return None  # the walk down from ``node`` reaches this given node
    for given in flow.given.values():
        if (step := answer(node, given.node)) is not None:
            flow.sources[given.name] = Source(given.name, given.node.fields)
            return given.name, (step,)
    return None


def _operator(flow: Dataflow, node: KeyedNode) -> str:
    """The id of the operator that gives the rows of ``node``. Adds it, and all operators before it, if missing."""
    meaning = fingerprint(node)
    first, *others = node.parts
    if meaning + node.parts[-1].suffix in flow.operators:
        return meaning + node.parts[-1].suffix
    operator_id = meaning + first.suffix
    for port, feed in enumerate(node.inputs):
        for producer, steps in _producers(flow, feed):
            flow.paths.append(Path(producer, steps, operator_id, port))
    flow.operators[operator_id] = Operator(
        operator_id, first, node, tuple(each.fields for each in node.inputs), node.fields
    )
    for part in others:
        producer, operator_id = operator_id, meaning + part.suffix
        flow.paths.append(Path(producer, (), operator_id, 0))
        flow.operators[operator_id] = Operator(operator_id, part, node, (node.fields,), node.fields)
    return operator_id


def _placed(flow: Dataflow, path: Path, is_native: Callable[[tuple[Step, ...]], bool]) -> Path:
    """Return the path with ``catalyst`` set (it needs Spark's expressions) or ``local`` set (its rows are already
    spread by the consumer's key)."""
    producer = flow.operators.get(path.producer)
    fields = producer.fields if producer else flow.sources[path.producer].fields
    if not is_native(path.steps):
        return replace(path, catalyst=True)
    if producer is None:
        return path
    mapping: list[int | None] = list(range(len(fields)))
    for step in path.steps:
        mapping = [None if index is None else mapping[index] for index in step.passed_on]
    key = tuple(mapping[index] for index in flow.operators[path.consumer].keys[path.port])
    return replace(path, local=key in producer.part.spread)


def _assign_stages(flow: Dataflow) -> None:
    """Put each operator into the earliest stage that its producers allow. Paths between stages are not ``local``."""
    for operator_id, operator in list(flow.operators.items()):
        stage = 0
        for path in flow.into(operator_id):
            producer = flow.operators.get(path.producer)
            stage = max(stage, 1 if producer is None else producer.stage + (0 if path.local else 1))
        flow.operators[operator_id] = replace(operator, stage=stage)
    flow.paths = [
        replace(path, local=path.local and _stage(flow, path.producer) == _stage(flow, path.consumer))
        for path in flow.paths
    ]


def _stage(flow: Dataflow, producer: str) -> int:
    operator = flow.operators.get(producer)
    return operator.stage if operator else 0
