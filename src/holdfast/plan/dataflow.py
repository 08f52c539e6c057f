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
from holdfast.plan.expression import plain
from holdfast.plan.fingerprint import fingerprint
from holdfast.plan.nodes import (
    Aggregate,
    Apply,
    Draw,
    Field,
    Generate,
    Join,
    Linear,
    Node,
    SetOperation,
    Source,
    Step,
    Temporal,
    TopK,
    Union,
    Window,
)


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
    """A keyed operator: what it does (``node``), under which id its state is kept, and in which stage it runs."""

    id: str
    kind: str
    """``aggregate``, ``join``, ``outer`` (left and full joins), ``semi`` (semi and anti joins), ``set``,
    ``bucket`` or ``global`` (the two halves of a top-k), ``window``, ``draw``, ``temporal``, ``log``."""

    node: Node
    ports: int
    keys: tuple[tuple[int, ...], ...]
    """For each port, the positions of its key."""

    spread: tuple[tuple[int, ...], ...]
    """The ways in which its output is spread: tuples of output positions whose hash decides the partition."""

    fields: tuple[Field, ...]
    name: str = ""
    check: bool = False
    stage: int = 0


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
        keys = tuple(range(len(node.columns)))
        operator = Operator(
            id=log_id(fingerprint(node), keys),
            kind="log",
            node=node,
            ports=1,
            keys=(keys,),
            spread=(keys,),
            fields=node.fields,
            name=name,
            check=True,
        )
        for producer, steps in _producers(flow, node):
            flow.paths.append(Path(producer, steps, operator.id, 0))
        flow.operators[operator.id] = operator
        flow.views[name] = operator.id
    for name, node in views.items():
        _add_log(flow, name, node)
    _name_draws(flow)
    flow.paths = [_placed(flow, path, is_native) for path in flow.paths]
    _assign_stages(flow)
    return flow


def _name_draws(flow: Dataflow) -> None:
    """A function of the user's may fail: then the error names the first view that draws from it."""
    draws = {mark for mark, operator in flow.operators.items() if operator.kind == "draw"}
    for view, log in flow.views.items() if draws else ():
        for mark in flow.ancestors({log}) & draws:
            operator = flow.operators[mark]
            if not operator.name:
                flow.operators[mark] = replace(operator, name=view)


def _add_log(flow: Dataflow, name: str, node: Node) -> None:
    key = _arrangement(node)
    operator = Operator(
        id=log_id(fingerprint(node), key),
        kind="log",
        node=node,
        ports=1,
        keys=(key,),
        spread=(key,),
        fields=node.fields,
        name=name,
    )
    flow.views[name] = operator.id
    if operator.id not in flow.operators:
        for producer, steps in _producers(flow, node):
            flow.paths.append(Path(producer, steps, operator.id, 0))
        flow.operators[operator.id] = operator


def _arrangement(node: Node) -> tuple[int, ...]:
    """By which columns a view's rows are kept: the key by which they are spread already, if that is a function of the
    row (then no exchange is needed, and equal rows always meet); else the whole row."""
    whole = tuple(range(len(node.columns)))
    mapping: list[int | None] = list(whole)
    while isinstance(node, Step):
        refs = _passed_on(node)
        mapping = [None if place is None else refs[place] for place in mapping]
        node = node.input
    match node:
        case Aggregate():
            keys: tuple[tuple[int, ...], ...] = (tuple(range(len(node.keys))),)
        case Join():
            keys = _join_spread(node)
        case Window():
            keys = (tuple(map(node.columns.index, node.partition)),)
        case Draw():
            keys = (tuple(range(len(node.input.columns))),)
        case SetOperation():
            keys = (tuple(range(len(node.columns))),)
        case Temporal():
            keys = (_temporal_key(node),)
        case TopK():
            return ()
        case _:
            return whole
    for key in keys:
        found = [mapping.index(place) if place in mapping else None for place in key]
        if all(place is not None for place in found):
            return tuple(place for place in found if place is not None)
    return whole


def _temporal_key(node: Temporal) -> tuple[int, ...]:
    """By which columns the rows of a `Temporal` meet: as they are spread already, or by all of what they were before
    their moments were computed."""
    key = _arrangement(node.input)
    if len(key) < len(node.columns):
        return key
    moments = {node.columns.index(name) for name in node.moments}
    return tuple(place for place in key if place not in moments) or key


def _join_spread(node: Join) -> tuple[tuple[int, ...], ...]:
    """Rows lie where the hash of their key says. A row that matched nothing has NULLs for the key of the other side."""
    left, right = list(node.left.columns), list(node.right.columns)
    by_left = tuple(left.index(key) for key in node.left_keys)
    match node.how:
        case "inner":
            return by_left, tuple(len(left) + right.index(key) for key in node.right_keys)
        case "full":
            return () if node.left_keys else ((),)
        case _:
            return (by_left,)


def _join_kind(node: Join) -> str:
    """Which kernel does it."""
    return {"inner": "join", "left": "outer", "full": "outer", "semi": "semi", "anti": "semi"}[node.how]


def _producers(flow: Dataflow, node: Node) -> list[tuple[str, tuple[Step, ...]]]:
    """The sources and operators whose changes, through linear steps, make up the changes of ``node``."""
    if flow.given and (found := _from_given(flow, node)) is not None:
        return [found]
    match node:
        case Source():
            flow.sources[node.name] = node
            return [(node.name, ())]
        case Linear() | Generate() | Apply():
            return [(producer, (*steps, node)) for producer, steps in _producers(flow, node.input)]
        case Union():
            return [found for child in node.inputs for found in _producers(flow, child)]
        case _:
            return [(_operator(flow, node), ())]


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


def _operator(flow: Dataflow, node: Aggregate | Join | SetOperation | TopK | Window | Draw | Temporal) -> str:
    mark = fingerprint(node)
    if mark in flow.operators:
        return mark
    match node:
        case Aggregate():
            columns = list(node.input.columns)
            key = tuple(columns.index(name) for name in node.keys)
            feeds: tuple[Node, ...] = (node.input,)
            operator = Operator(
                id=mark,
                kind="aggregate",
                node=node,
                ports=1,
                keys=(key,),
                spread=(tuple(range(len(key))),),
                fields=node.fields,
            )
        case Join():
            feeds = (node.left, node.right)
            left, right = list(node.left.columns), list(node.right.columns)
            operator = Operator(
                id=mark,
                kind=_join_kind(node),
                node=node,
                ports=2,
                keys=(tuple(map(left.index, node.left_keys)), tuple(map(right.index, node.right_keys))),
                spread=_join_spread(node),
                fields=node.fields,
            )
        case SetOperation():
            feeds = (node.left, node.right)
            row = tuple(range(len(node.columns)))
            operator = Operator(
                id=mark, kind="set", node=node, ports=2, keys=(row, row), spread=(row,), fields=node.fields
            )
        case Window():
            feeds = (node.input,)
            key = tuple(map(node.columns.index, node.partition))
            operator = Operator(
                id=mark, kind="window", node=node, ports=1, keys=(key,), spread=(key,), fields=node.fields
            )
        case Draw():
            # The whole row is the key: equal rows meet, and a row that goes finds what was drawn for it.
            feeds = (node.input,)
            row = tuple(range(len(node.input.columns)))
            operator = Operator(
                id=mark, kind="draw", node=node, ports=1, keys=(row,), spread=(row,), fields=node.fields
            )
        case Temporal():
            feeds = (node.input,)
            key = _temporal_key(node)
            operator = Operator(
                id=mark, kind="temporal", node=node, ports=1, keys=(key,), spread=(key,), fields=node.fields
            )
        case TopK():
            # Two halves: the first rows of each of 256 fixed buckets, wherever those are; then the first of those, in
            # one place.
            feeds = (node.input,)
            bucket = Operator(
                id=f"{mark}-bucket",
                kind="bucket",
                node=node,
                ports=1,
                keys=(_arrangement(node.input),),
                spread=(),
                fields=node.fields,
            )
            for producer, steps in _producers(flow, node.input):
                flow.paths.append(Path(producer, steps, bucket.id, 0))
            flow.operators[bucket.id] = bucket
            operator = Operator(
                id=mark, kind="global", node=node, ports=1, keys=((),), spread=((),), fields=node.fields
            )
            flow.paths.append(Path(bucket.id, (), mark, 0))
            flow.operators[mark] = operator
            return mark
    for port, feed in enumerate(feeds):
        for producer, steps in _producers(flow, feed):
            flow.paths.append(Path(producer, steps, mark, port))
    flow.operators[mark] = operator
    return mark


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
        mapping = [None if place is None else mapping[place] for place in _passed_on(step)]
    key = tuple(mapping[place] for place in flow.operators[path.consumer].keys[path.port])
    return replace(path, local=key in producer.spread)


def _assign_stages(flow: Dataflow) -> None:
    """Place each operator as early as its producers allow; a path that cannot stay in its task crosses an exchange."""
    for mark, operator in list(flow.operators.items()):
        stage = 0
        for path in flow.into(mark):
            producer = flow.operators.get(path.producer)
            stage = max(stage, 1 if producer is None else producer.stage + (0 if path.local else 1))
        flow.operators[mark] = replace(operator, stage=stage)
    flow.paths = [
        replace(path, local=path.local and _stage(flow, path.producer) == _stage(flow, path.consumer))
        for path in flow.paths
    ]


def _stage(flow: Dataflow, mark: str) -> int:
    operator = flow.operators.get(mark)
    return operator.stage if operator else 0


def _passed_on(step: Step) -> list[int | None]:
    """For each column of a step, which of its input it is; None if the step makes it."""
    below = {name: place for place, name in enumerate(step.input.columns)}
    if isinstance(step, Linear):
        return [below.get(plain(output.expression) or "") for output in step.outputs]
    return [*range(len(below)), *[None] * (len(step.columns) - len(below))]
