"""A flow's declarations: its sources, functions and views, each view with its plan.

A catalog does not change: a declaration makes a new one, and a refused declaration leaves the old one as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

from holdfast.connectors.bad_lines import Quarantined
from holdfast.connectors.source import Source
from holdfast.errors import DeclarationError, UnknownName
from holdfast.foundation.nearest_name import did_you_mean
from holdfast.frontend.loop_queries import Query
from holdfast.frontend.unique_ids import UniqueIds
from holdfast.frontend.view_order import in_a_cycle, in_order
from holdfast.operators.rewrites import rewrite
from holdfast.operators.unique import Unique
from holdfast.plan import nodes
from holdfast.plan.walk import Kept, reachable


@dataclass(frozen=True)
class Planned:
    """A view as Spark analysed it: its plan, the collections that it reads, and its columns."""

    node: nodes.Node
    reads: frozenset[str]
    fields: tuple[nodes.Field, ...]
    statics: Mapping[str, Source] = field(default_factory=dict, compare=False)
    """The static tables that the view reads: tables and DataFrames that are not the flow's, as sources."""


class Planner(Protocol):
    """Plans queries: `spark.planning`."""

    def plan(
        self,
        view: str,
        query: Query,
        collections: Mapping[str, nodes.Node],
        schemas: Mapping[str, Sequence[nodes.Field]],
        functions: Mapping[str, nodes.UserFunction],
    ) -> Planned:
        """Return the plan of a view over ``collections``, whose columns are ``schemas``."""

    def expiring(self, source: nodes.Source, expires: str, functions: Mapping[str, nodes.UserFunction]) -> nodes.Node:
        """Plan the rows of ``source``, each until the moment that the SQL expression ``expires`` gives for it."""


@dataclass(frozen=True)
class Catalog:
    """The names of a flow, and their meanings."""

    sources: Mapping[str, Source] = field(default_factory=dict)
    expiring: Mapping[str, nodes.Node] = field(default_factory=dict)
    """Source → the node that views read in its place, for a source whose rows expire, replace each other, or count once
    by id."""

    functions: Mapping[str, nodes.UserFunction] = field(default_factory=dict)
    queries: Mapping[str, Query] = field(default_factory=dict)
    """View → its query as it was declared."""

    planned: Mapping[str, Planned] = field(default_factory=dict)
    """View → its query as Spark analysed it."""

    views: Mapping[str, nodes.Node] = field(default_factory=dict)
    """View → its plan after rewrites."""

    statics: Mapping[str, Source] = field(default_factory=dict)
    """The static tables of views, present and past: these objects know what was taken of them."""

    _within: Mapping[str, Kept] = field(default_factory=dict, repr=False, compare=False)
    """View → the ids of the nodes of its plan."""

    def with_source(self, name: str, source: Source, expires: str | None, planner: Planner | None) -> Self:
        """Return the catalog with a source. ``planner`` is needed if its rows expire."""
        sources = {**self.sources, name: source}
        if source.versions is not None:
            node = nodes.Source(name, tuple(source.fields))
            found = {name: source.versions.rows(node)}
            if isinstance(source.versions, Quarantined):
                beside = f"{name}_quarantine"
                self.check_new(beside, "source")
                found[beside] = source.versions.quarantine(node)
            return replace(self, sources=sources, expiring={**self.expiring, **found})
        if expires is None:
            return replace(self, sources=sources)
        assert planner is not None
        left = planner.expiring(nodes.Source(name, tuple(source.fields)), expires, self.functions)
        return replace(self, sources=sources, expiring={**self.expiring, name: left})

    def with_unique(self, name: str, source: Source, ids: UniqueIds) -> Self:
        """Return the catalog with a source whose records count once by their ids."""
        left = ids.over(nodes.Source(name, tuple(source.fields)), source.retracts)
        return replace(self, sources={**self.sources, name: source}, expiring={**self.expiring, name: left})

    @property
    def unique(self) -> frozenset[str]:
        """The sources whose records count once by their ids."""
        return frozenset(name for name, left in self.expiring.items() if isinstance(left, Unique))

    def with_function(self, function: nodes.UserFunction, planner: Planner) -> Self:
        functions = {**self.functions, function.name: function}
        return replace(self, functions=functions).planned_anew(planner)

    def with_view(self, name: str, query: Query, planner: Planner) -> Self:
        self.check_case(name, "view")
        found = planner.plan(name, query, self.tables, self.schemas, self.functions)
        result = replace(self, queries={**self.queries, name: query})
        if name not in self.planned:
            if name in found.reads:
                raise in_a_cycle((name, name))
            return result._with_plans({**self.planned, name: found})
        reads = {each: known.reads for each, known in self.planned.items()} | {name: found.reads}
        order = in_order(reads)  # raises ViewCycle if a view would read itself
        changed = {name}
        for each in order:
            if reads[each] & changed:
                changed.add(each)
        kept = {each: known for each, known in self.planned.items() if each not in changed}
        return result._planned(planner, {**kept, name: found}, order)

    def without_view(self, view: str) -> Self:
        readers = [name for name, found in self.planned.items() if view in found.reads and name != view]
        if readers:
            those = ", ".join(f"'{name}'" for name in readers) + (" reads it" if len(readers) == 1 else " read it")
            raise DeclarationError(
                f"view '{view}': it cannot be dropped while {those}; drop or change what reads it first",
                view=view,
                readers=readers,
            )
        planned = {name: found for name, found in self.planned.items() if name != view}
        queries = {name: query for name, query in self.queries.items() if name != view}
        return replace(self, queries=queries)._with_plans(planned)

    def planned_anew(self, planner: Planner) -> Self:
        """Return the catalog with all views planned again, after a function or the session's meaning has changed."""
        return self._planned(planner, {}, in_order({name: found.reads for name, found in self.planned.items()}))

    def _planned(self, planner: Planner, known: Mapping[str, Planned], order: Sequence[str]) -> Self:
        """Return the catalog with plans of all queries, made in ``order``. Queries in ``known`` are not planned
        again."""
        result = replace(self, planned={}, views={})
        for name in order:
            found = known.get(name) or planner.plan(
                name, self.queries[name], result.tables, {**self.schemas, **result.schemas}, self.functions
            )
            result = result._with_plans({**result.planned, name: found})
        return result

    def _with_plans(self, planned: Mapping[str, Planned]) -> Self:
        views: dict[str, nodes.Node] = {name: node for name, node in self.views.items() if name in planned}
        within = {name: ids for name, ids in self._within.items() if name in views}
        for name, found in planned.items():
            if name not in views or self.planned.get(name) != found:
                # A collection that an earlier view keeps is kept once: no rewrite may make a variant of it.
                kept = frozenset().union(*map(_ids, self.expiring.values()), *within.values())
                views[name] = rewrite(found.node, keep=kept)
                within[name] = _ids(views[name])
        statics = dict(self.statics)
        for name, found in planned.items():
            for static, source in found.statics.items():
                if statics.setdefault(static, source).fields != source.fields:
                    raise DeclarationError(
                        f"view '{name}': '{static}' has other columns than an earlier view found there", view=name
                    )
        return replace(self, planned=planned, views=views, statics=statics, _within=within)

    @property
    def all_sources(self) -> dict[str, Source]:
        """The declared sources, and the static tables of the present views."""
        brought = {name for found in self.planned.values() for name in found.statics}
        return {**self.sources, **{name: source for name, source in self.statics.items() if name in brought}}

    @property
    def tables(self) -> dict[str, nodes.Node]:
        """The nodes of all names that SQL can read: sources (without expired rows) and views."""
        sources = {name: nodes.Source(name, tuple(source.fields)) for name, source in self.sources.items()}
        return {**sources, **self.expiring, **self.views}

    @property
    def schemas(self) -> dict[str, tuple[nodes.Field, ...]]:
        """The columns of all names that SQL can read."""
        sources = {name: tuple(source.fields) for name, source in self.sources.items()}
        sources |= {name: node.fields for name, node in self.expiring.items()}
        return {**sources, **{name: found.fields for name, found in self.planned.items()}}

    def check_new(self, name: str, kind: str) -> None:
        """Raise `DeclarationError` unless a new ``kind`` of collection may have this name."""
        if not name or not isinstance(name, str):
            raise DeclarationError(f"{kind}: the name must be a text, not {name!r}")
        if name in self.sources or name in self.views or name in self.expiring:
            raise DeclarationError(f"{kind} '{name}': there is a source or view of that name already", name=name)
        self.check_case(name, kind)

    def check_case(self, name: str, kind: str) -> None:
        """Raise if another source or view has this name in other letter case, since SQL's names ignore case."""
        for other in (*self.sources, *self.views):
            if other != name and other.lower() == name.lower():
                message = f"{kind} '{name}': there is '{other}' already, and names ignore case; take another name"
                raise DeclarationError(message, name=name, other=other)

    def check_view(self, name: str) -> None:
        """Raise `UnknownName` unless there is a view of this name."""
        if name in self.tables and name not in self.views:
            raise UnknownName(
                f"view '{name}' not found: '{name}' is a source; flow.table('{name}') reads it, or keep a view of it: "
                f"flow.view('{name}_rows', 'SELECT * FROM {name}')",
                name=name,
            )
        if name not in self.views:
            raise UnknownName(f"view '{name}' not found{did_you_mean(name, self.views)}", name=name)


def _ids(plan: nodes.Node) -> Kept:
    return frozenset(id(each) for each in reachable(plan))
