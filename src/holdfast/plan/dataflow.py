"""From plans to a dataflow: operators, the paths between them, and the stages they run in.

Plans of several views are trees that share subtrees. Here they become one graph: a keyed node that occurs twice (by
fingerprint) is one operator; the linear stretch between two keyed nodes is a *path*. Each view ends in a ``log``
operator, which keeps the view's rows; so does each source whose rows the log must keep.

Stages. Rows move between hosts only in an exchange, and all paths into a stage share that one exchange. An operator
sits in the stage after its producers', unless its key is the very key by which a producer's output is spread already:
then it runs in the same stage, in the same task, and no exchange is needed. So the number of exchanges of an epoch is
the length of the longest chain of *different* keys, however many operators and views there are.

Positions. From here on columns go by position: an operator's key and arguments are positions in what arrives at its
port, and names matter no more.
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
    """True when the consumer runs in the producer's own task: no exchange."""

    catalyst: bool = False
    """True when a step needs Spark's own expressions: it runs in Spark, between two tasks."""


@dataclass(frozen=True)
class Operator:
    """A keyed operator: what it does (``node``, and which ``part`` of it), under which id its state is kept, and in
    which stage it runs. The ``node`` of a log is the one whose rows it keeps."""

    id: str
    part: KeyedPart
    node: Node
    arriving: tuple[tuple[Field, ...], ...]
    """For each port, the columns of what arrives."""

    fields: tuple[Field, ...]
    name: str = ""
    """The view, or the source, that it is for: of several the first to be declared."""

    check: bool = False
    """Of a log: whether it checks that no row is taken away more often than it is there."""

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
    """Rows that are to be had under a name instead of computed, and the node that would compute them."""

    name: str
    node: Node


@dataclass
class Dataflow:
    """All operators of a flow in an order in which each comes after its producers, and the paths between them."""

    operators: dict[str, Operator] = field(default_factory=dict)
    paths: list[Path] = field(default_factory=list)
    sources: dict[str, Source] = field(default_factory=dict)
    views: dict[str, str] = field(default_factory=dict)
    """View (or kept source) → id of the ``log`` operator that holds its rows."""

    given: Mapping[str, Given] = field(default_factory=dict)
    """Fingerprint of a node → a source that has its rows: what lies behind it is not in the dataflow."""

    _indexed: tuple[list[Path], int, tuple[dict[str, list[Path]], dict[str, list[Path]]]] | None = field(
        default=None, repr=False, compare=False
    )
    """The list of paths that was indexed, its length then, and the index."""

    @property
    def stages(self) -> int:
        return max((operator.stage for operator in self.operators.values()), default=0)

    def into(self, consumer: str, port: int | None = None) -> list[Path]:
        return [path for path in self._ends[1].get(consumer, ()) if port in (None, path.port)]

    def out_of(self, producer: str) -> list[Path]:
        return list(self._ends[0].get(producer, ()))

    def ancestors(self, ids: set[str]) -> set[str]:
        """The operators and sources that ``ids`` depend on, themselves not included unless reached."""
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
        """Producer → its paths, and consumer → its paths."""
        if self._indexed is None or self._indexed[0] is not self.paths or self._indexed[1] != len(self.paths):
            ends: tuple[dict[str, list[Path]], dict[str, list[Path]]] = ({}, {})
            for path in self.paths:
                ends[0].setdefault(path.producer, []).append(path)
                ends[1].setdefault(path.consumer, []).append(path)
            self._indexed = (self.paths, len(self.paths), ends)
        return self._indexed[2]


def log_id(view_fingerprint: str, key: Sequence[int]) -> str:
    """A view's rows are kept by meaning and arrangement: a renamed view, or one declared twice, is the same log."""
    return f"{view_fingerprint}-log" + "".join(f"-{position}" for position in key)


def build(
    views: Mapping[str, Node],
    kept_sources: Mapping[str, Node],
    is_native: Callable[[tuple[Step, ...]], bool],
    given: Sequence[Given] = (),
) -> Dataflow:
    """The dataflow of ``views`` (typed plans), with the rows of ``kept_sources`` (a source, or what is left of it when
    rows have expired) kept and checked. ``given``: nodes whose rows are not to be computed; what is to be had from them
    is read from sources of those names."""
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
    """A source whose operator keeps its rows: that is its log."""
    operator_id = _operator(flow, node)
    flow.views[name] = operator_id
    if operator_id in flow.operators:
        flow.operators[operator_id] = replace(flow.operators[operator_id], name=name)


def _share_bounds(flow: Dataflow, view: Node) -> None:
    """Have operators that several views share be held to the bounds of each."""
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
    """Whatever fails in an operator, the error names the first view that depends on it."""
    for view, log in flow.views.items():
        for operator_id in flow.ancestors({log}) & flow.operators.keys():
            operator = flow.operators[operator_id]
            if not operator.name:
                flow.operators[operator_id] = replace(operator, name=view)


def _producers(flow: Dataflow, node: Node) -> list[tuple[str, tuple[Step, ...]]]:
    """The sources and operators whose changes, through linear steps, make up the changes of ``node``."""
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
    """The source that has the rows of ``node``, or rows from which a step makes them; None if there is none."""
    if (given := flow.given.get(fingerprint(node))) is not None:
        flow.sources[given.name] = Source(given.name, node.fields)
        return given.name, ()
    if not isinstance(node, Linear):
        return None
    below: Node = node
    while isinstance(below, Linear):
        below = below.input
        if fingerprint(below) in flow.given:
            return None  # the plan itself leads there
    for given in flow.given.values():
        if (step := answer(node, given.node)) is not None:
            flow.sources[given.name] = Source(given.name, given.node.fields)
            return given.name, (step,)
    return None


def _operator(flow: Dataflow, node: KeyedNode) -> str:
    """The operator that gives the rows of ``node``, with all before it."""
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
    """Whether ``path`` needs Spark's expressions, and whether its rows are where they are needed already."""
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
    """Place each operator as early as its producers allow; a path that cannot stay in its task crosses an exchange."""
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
