"""What a flow was told: its sources, functions and views, each view with its plan.

A catalog does not change: a declaration makes a new one, and one that is refused leaves the old one as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from holdfast.connectors.source import Source
from holdfast.errors import DeclarationError, UnknownName
from holdfast.frontend.expiry import expiring
from holdfast.frontend.nearest import did_you_mean
from holdfast.frontend.references import in_order, tables_named
from holdfast.frontend.sql import plan_sql
from holdfast.frontend.verbs import Table
from holdfast.plan import nodes
from holdfast.plan.fingerprint import fingerprint
from holdfast.plan.rewrites import rewrite
from holdfast.plan.walk import with_functions


@dataclass(frozen=True)
class Catalog:
    """Names, and what they stand for."""

    sources: Mapping[str, Source] = field(default_factory=dict)
    expiring: Mapping[str, nodes.Node] = field(default_factory=dict)
    """Source → what is left of it, for those whose rows expire."""

    functions: Mapping[str, nodes.UserFunction] = field(default_factory=dict)
    queries: Mapping[str, str | Table] = field(default_factory=dict)
    """View → as it was declared."""

    views: Mapping[str, nodes.Node] = field(default_factory=dict)
    """View → its plan."""

    def with_source(self, name: str, source: Source, expires: str | None) -> Self:
        sources = {**self.sources, name: source}
        if expires is None:
            return replace(self, sources=sources)
        left = expiring(nodes.Source(name, tuple(source.fields)), expires)
        return replace(self, sources=sources, expiring={**self.expiring, name: left})

    def with_function(self, function: nodes.UserFunction) -> Self:
        functions = {**self.functions, function.name: function}
        return replace(self, functions=functions)._with_views(self.queries)

    def with_view(self, name: str, query: str | Table) -> Self:
        self.check_case(name, "view")
        # Earlier views are as they were, unless one of them is replaced.
        known = {} if name in self.queries else self.views
        return self._with_views({**self.queries, name: query}, known)

    def without_view(self, view: str) -> Self:
        readers = [name for name, query in self.queries.items() if view.lower() in _reads(name, query) - {name.lower()}]
        if readers:
            those = ", ".join(f"'{name}'" for name in readers) + (" reads it" if len(readers) == 1 else " read it")
            raise DeclarationError(
                f"view '{view}': it cannot be dropped while {those}; drop or change what reads it first",
                view=view,
                readers=readers,
            )
        return self._with_views({name: query for name, query in self.queries.items() if name != view})

    def _with_views(self, queries: Mapping[str, str | Table], known: Mapping[str, nodes.Node] | None = None) -> Self:
        """With plans of ``queries``; those that are ``known`` need not be made again."""
        views: dict[str, nodes.Node] = dict(known or {})
        missing = {name: query for name, query in queries.items() if name not in views}
        for name in in_order({name: _reads(name, query) for name, query in missing.items()}):
            query = missing[name]
            if isinstance(query, str):
                plan = plan_sql(name, query, replace(self, views=views).tables, self.functions)
            else:
                plan = with_functions(query.plan, self.functions) if self.functions else query.plan
            # What an earlier view keeps is kept once: no rewrite may make a variant of it.
            views[name] = self._as_before(name, rewrite(plan, keep=[*self.expiring.values(), *views.values()]))
        return replace(self, queries=queries, views=views)

    def _as_before(self, name: str, plan: nodes.Node) -> nodes.Node:
        """The plan that the view has already, if the new one means the same. Tables through verbs hold its very nodes:
        those of another plan would not be known as the view's, and filters would be pushed into a variant of it."""
        before = self.views.get(name)
        if before is None or before.columns != plan.columns or fingerprint(before) != fingerprint(plan):
            return plan
        return before

    @property
    def tables(self) -> dict[str, nodes.Node]:
        """What SQL can read: sources, as far as they have not expired, and views."""
        sources = {name: nodes.Source(name, tuple(source.fields)) for name, source in self.sources.items()}
        return {**sources, **self.expiring, **self.views}

    def check_new(self, name: str, kind: str) -> None:
        """Raise unless a ``kind`` of collection may have this name."""
        if not name or not isinstance(name, str):
            raise DeclarationError(f"{kind}: the name must be a text, not {name!r}")
        if name in self.sources or name in self.views:
            raise DeclarationError(f"{kind} '{name}': there is a source or view of that name already", name=name)
        self.check_case(name, kind)

    def check_case(self, name: str, kind: str) -> None:
        """Raise if another source or view has this name in other letters: to SQL, names ignore case."""
        for other in (*self.sources, *self.views):
            if other != name and other.lower() == name.lower():
                message = f"{kind} '{name}': there is '{other}' already, and names ignore case; take another name"
                raise DeclarationError(message, name=name, other=other)

    def check_view(self, name: str) -> None:
        """Raise unless there is such a view."""
        if name not in self.views:
            raise UnknownName(f"view '{name}' not found{did_you_mean(name, self.views)}", name=name)


def _reads(name: str, query: str | Table) -> set[str]:
    """The names of what a view reads; those of a table through verbs are in its plan already."""
    return tables_named(name, query) if isinstance(query, str) else set()
