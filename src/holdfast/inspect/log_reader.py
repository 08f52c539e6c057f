"""The reader that ``hf.open_log`` returns: the views of a log at one epoch, without Spark, while a flow may run it.

A reader takes no lock and writes nothing. It reads the lineage first: epochs in the lineage are complete, and a layer
counts only if its digest is in the lineage. So everything that a `LogReader` returns is as of one epoch, until
`refresh` goes to the last epoch.

Layers are merged meanwhile. A layer that has disappeared was merged into another layer, which may reach beyond the
reader's epoch; then the reader reads the lineage again, to learn the digest of that layer, and stays at its epoch.
Mapped files can still be read after they were removed. Only if compaction has passed the epoch (``retain``) it cannot
be read any more: `EpochUnavailable`.

Layers in the working directory are mapped in place. From log locations the layers that a view needs are fetched into a
directory, which `close` removes.

The file is long because it is the public surface of a reader in one class.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.coordinator.copy_plan import trusting
from holdfast.coordinator.history import History
from holdfast.coordinator.view_versions import ViewVersion, ViewVersions, described
from holdfast.errors import EpochUnavailable, HoldfastError, LogDamaged, LogUnreadable, UnknownName
from holdfast.foundation import arguments
from holdfast.foundation.nearest_name import did_you_mean
from holdfast.inspect.gathered_layers import GatheredLayers
from holdfast.inspect.places import Named, Working, chain_of, declared, open_places, read_history
from holdfast.inspect.shown_order import ordered
from holdfast.log.growing_history import GrowingHistory
from holdfast.log.replica import is_true
from holdfast.operators.log import LogSpec
from holdfast.plan.nodes import Field
from holdfast.plan.types import arrow_type
from holdfast.queries.subscription import Subscription, batch_end, check_since, pause
from holdfast.results.view_results import Found
from holdfast.runtime.view_changes import LoggedSpan, as_it_was, as_table, changes_since, not_kept
from holdfast.task.key_lookup import answer, key_columns, question, suited
from holdfast.task.view_log import ViewLog
from holdfast.trace.cover import Chain, covered
from holdfast.trace.name import ALL
from holdfast.trace.open_covers import OpenCovers

if TYPE_CHECKING:
    import pandas

_ATTEMPTS = 4
"""How often a read looks at the log again when layers have disappeared."""

_IDLE = 30.0
"""Seconds after which files that were not used are closed."""

T = TypeVar("T")


@dataclass(frozen=True)
class _Look:
    """The result of a look at the log."""

    epoch: int
    history: History
    chain: Chain
    kept: Mapping[str, Any]
    """The descriptions of the flow's collections, by name."""

    before: Mapping[str, ViewVersion] | None
    """The first versions of views, if the history does not name them."""

    present: int
    """The last epoch at that time. As of it views have the versions in ``kept``, also if an edit was declared that no
    epoch has made yet."""

    logs: dict[tuple[str, str], ViewLog] = field(default_factory=dict)
    """(View, trace) → log, for the logs that were found in the working directory."""


class LogReader:
    """The views of a log, all as of one epoch. All methods may be called from any thread; no method waits for the
    flow."""

    def __init__(self, log: Named, others: Sequence[Named] = (), only: Sequence[str] | None = None) -> None:
        """``only``: the views whose layers must be there, if there are only log locations (by default all views)."""
        self._named = (log, others, only)
        self._flow, self._places = open_places([log, *others])
        self._only = only
        self._covers = OpenCovers()
        self._lock = threading.RLock()
        stash = next((place.stash for place in self._places if isinstance(place, Working)), None)
        self._growing = GrowingHistory(stash, lambda: read_history(self._places)[0])
        self._gathered = GatheredLayers(self._places)
        self._closed = False
        self._look = self._seen(None)

    # -- where it is ----------------------------------------------------------------------------------------------

    @property
    def flow(self) -> str:
        """The name of the flow."""
        return self._flow

    @property
    def epoch(self) -> int:
        """The epoch as of which everything is read; -1 if no epoch is complete yet."""
        return self._look.epoch

    @property
    def views(self) -> tuple[str, ...]:
        """The names of the views."""
        return tuple(name for name, entry in self._look.kept.items() if entry["kind"] == "view")

    def key(self, view: str) -> tuple[str, ...]:
        """The columns by which a view can be looked up without a scan."""
        entry = self._entry(self._look, view)
        return key_columns(_fields(entry), entry["key"])

    def refresh(self) -> int:
        """Go to the last complete epoch, and return it. If only log locations were given, go to the last epoch that
        they hold completely."""
        with self._lock:
            self._check_open()
            self._look = self._seen(self._look)
            self._covers.let_go(_IDLE)
            return self._look.epoch

    def _seen(self, before: _Look | None, at: int | None = None) -> _Look:
        """Look at the log, as of its last epoch or as of ``at``."""
        history, _ = self._growing.read()
        # The look before can be extended only if it has the same history.
        goes_on = before is not None and before.history is history
        if before is not None and goes_on and history.last == before.present and at is None:
            return before if before.epoch == history.last else replace(before, epoch=history.last)
        if before is not None and goes_on:
            new = tuple(lineage.digest for lineage in history[before.chain.end + 1 :])
            chain = replace(before.chain, digests=(*before.chain.digests, *new))
        else:
            chain = chain_of(history)
        if before is not None and chain.digest(before.epoch) != before.chain.digest(before.epoch):
            self._covers.forget()  # another history: epochs were lost, and other epochs have their numbers
        found = declared(self._places)
        kept = found.get("collections", {})
        says = any(lineage.views is not None for lineage in history)
        first = None if says or not history else described(found.get("before", kept))
        look = _Look(history.last, history, chain, kept, first, history.last)
        return replace(look, epoch=self._latest(look) if at is None else at)

    def _latest(self, look: _Look) -> int:
        """The last epoch as of which all views can be read."""
        last = look.history.last
        if last < 0 or any(isinstance(place, Working) and place.traces() for place in self._places):
            return last
        # Lineage is copied to the locations before layers: it may end after the last epoch that can be read.
        wanted = [name for name in self._only or look.kept if name in look.kept]
        held = {name: self._held(look, _trace(look.kept[name])) for name in wanted}
        for name, epoch in held.items():
            if epoch < 0:
                raise self._behind(name, last, epoch)
        return min(held.values(), default=last)

    def _held(self, look: _Look, trace: str) -> int:
        """The last epoch up to which the locations have all layers of a trace; -1 if there is none."""
        names = [n for place in self._places for n in place.layers(trace) if is_true(n, look.history)]
        return covered(names, 0, ALL, trusting(look.history.last))

    def _behind(self, name: str, epoch: int, held: int) -> EpochUnavailable:
        there = f"there are the layers of epochs 0 to {held}" if held >= 0 else "layers are missing"
        return EpochUnavailable(
            f"view '{name}': epoch {epoch} cannot be read from {self._places[0].uri}: {there}; give further log "
            "locations with --from",
            view=name,
            epoch=epoch,
            latest=held,
        )

    # -- rows -----------------------------------------------------------------------------------------------------

    def lookup(self, view: str, keys: Any = None, /, *, at: int | None = None, scan: bool = False, **key: Any) -> Found:
        """The rows of a key, or of many keys, as `Flow.lookup`; also of a source whose rows the log keeps."""
        at = _checked(view, at)
        arguments.flag(f"view '{view}', lookup", "scan", scan)
        entry = self._entry(self._look, view)
        asked = question(view, _fields(entry), entry["key"], keys, key, scan)

        def read(kept: ViewLog, epoch: int) -> Found:
            fit = suited(asked, kept)
            rows = answer(kept, kept.trace(self._covers, epoch), fit)
            return Found(view, epoch, _present(rows, entry), fit.scan)

        return self._read(view, at, read, recorded=at is not None)

    def arrow(self, view: str, at: int | None = None) -> pa.Table:
        """The rows of a view (or of an input that the log keeps) as an Arrow table, in the order of its ORDER BY if it
        has one: as of `epoch`, or of epoch ``at``."""
        at = _checked(view, at)
        return self._arrow(view, at, recorded=at is not None)

    def _arrow(self, view: str, at: int | None, recorded: bool) -> pa.Table:
        def read(kept: ViewLog, epoch: int) -> pa.Table:
            kept.check(view, epoch)
            entry = self._entry(self._look, view)
            return ordered(_present(kept.rows(0, ALL, epoch), entry), entry.get("sql", ""))

        return self._read(view, at, read, recorded)

    def pandas(self, view: str, at: int | None = None) -> pandas.DataFrame:
        """The rows that `arrow` returns, as a pandas DataFrame."""
        return self.arrow(view, at).to_pandas()

    def polars(self, view: str, at: int | None = None) -> Any:
        """The rows that `arrow` returns, as a Polars DataFrame; needs the package ``polars``."""
        return _package("polars", "polars()").from_arrow(self.arrow(view, at))

    def duckdb(self, *views: str, at: int | None = None) -> Any:
        """A new DuckDB connection with these views (by default all) as tables, as of one epoch; needs the package
        ``duckdb``. ``reader.duckdb().sql("SELECT …")``."""
        connection = _package("duckdb", "duckdb()").connect()
        epoch = self.epoch if at is None else at
        for view in views or self.views:
            connection.register(view, self._arrow(view, _checked(view, epoch), recorded=at is not None))
        return connection

    def changes(self, view: str, since: int = -1) -> pa.Table:
        """The changes of a view after epoch ``since``, up to `epoch`: the view's columns with ``_epoch`` and ``_diff``,
        as `Flow.changes`."""
        since = arguments.whole(f"view '{_checked_name(view)}'", "since", since)
        return self._changes(view, since, self.epoch)

    def subscribe(self, view: str, since: int | None = None, *, timeout: float | None = None) -> Subscription:
        """The changes of a view as epochs complete, as `Flow.subscribe`. The log is polled, every 5 ms at first and up
        to every half second while no epoch comes. This reader stays at its epoch."""
        subject = f"view '{_checked_name(view)}', subscribe"
        if since is not None:
            since = arguments.whole(subject, "since", since, -1)
        if timeout is not None:
            timeout = arguments.number(subject, "timeout", timeout)
        self._entry(self._look, view)
        followed = LogReader(*self._named)
        start = check_since(view, since, followed.epoch)
        given = followed._look.chain.digest(start)

        def pull(after: int) -> tuple[pa.Table, int] | None:
            nonlocal given
            if self._closed:
                return None
            upto = batch_end(after, followed.refresh())
            chain = followed._look.chain
            if given is not None and (after > chain.end or chain.digest(after) not in (None, given)):
                raise EpochUnavailable(
                    f"view '{view}', subscription: epoch {after}, up to which changes were given, is not what it was: "
                    "the flow was recovered without it; read the view anew, and subscribe since the epoch of that",
                    view=view,
                    epoch=after,
                    latest=chain.end,
                )
            if upto <= after:
                return None
            found = followed._changes(view, after, upto)
            given = chain.digest(upto)
            return found, upto

        return Subscription(view, start, pull, lambda: self._closed, pause, followed.close, timeout)

    def _changes(self, view: str, since: int, upto: int) -> pa.Table:
        """The changes of a view with since < epoch ≤ upto."""
        return self._read(view, upto, partial(self._changes_of, view, since), recorded=True)

    def _changes_of(self, view: str, since: int, kept: ViewLog, upto: int) -> pa.Table:
        look = self._look
        now = described({view: self._entry(look, view)})[view]
        versions = ViewVersions(look.history[: upto + 1], look.before)
        past = versions.of(view)
        if 0 <= since <= upto and past and (index := versions.at(view, since)) < len(past) - 1:
            directory = Path(kept.directory).parent

            def log_as(version: ViewVersion) -> ViewLog:
                spec = LogSpec(tuple(map(arrow_type, version.types)), version.key, False, view)
                return ViewLog(str(directory / version.trace), spec, kept.fields, kept.chain)

            return as_table(changes_since(view, since, upto, past, index, log_as, now), kept.fields)
        return as_table([LoggedSpan(kept, min(since, upto), upto)], kept.fields)

    # -- how they are read ----------------------------------------------------------------------------------------

    def _entry(self, look: _Look, name: str) -> Mapping[str, Any]:
        kept = look.kept
        if name not in kept:
            hint = did_you_mean(name, kept)
            keeps = f"; it keeps {', '.join(sorted(kept))}" if kept and not hint else hint
            raise UnknownName(
                f"log {self._places[0].uri}: flow '{self._flow}' keeps no view '{name}'{keeps}", name=name
            )
        entry: Mapping[str, Any] = kept[name]
        return entry

    def with_log(self, view: str, at: int | None, read: Callable[[ViewLog, int], T]) -> T:
        """Return ``read(log, epoch)`` for the log of a view and the epoch as of which to read it."""
        return self._read(view, _checked(view, at), read)

    def _read(self, view: str, at: int | None, read: Callable[[ViewLog, int], T], recorded: bool = False) -> T:
        """Return ``read(log, epoch)`` for the log of a view. If layers have disappeared or are damaged, the log is
        looked at again, and then layers are gathered from all places. ``recorded``: as in `ViewVersions.former`."""
        self._check_open()
        look = self._look
        epoch = self._epoch(look, view, at)
        problem: HoldfastError | None = None
        for _ in range(_ATTEMPTS):
            entry, as_of, edited = self._as_it_was(look, view, epoch, recorded)
            if edited is not None:
                return self._read_former(look, view, entry, as_of, read, not_kept(view, epoch, edited))
            kept = self._log(look, view, entry)
            if kept is None:
                break
            try:
                return read(kept, epoch)
            except (LogDamaged, LogUnreadable, EpochUnavailable) as error:
                if not isinstance(error, LogDamaged | EpochUnavailable) or str(error) == str(problem):
                    problem = error
                    break  # the same error again
                problem = error
            look = self._again(look)
        if problem is not None and len(self._places) == 1:
            raise problem
        return self._read_gathered(look, view, self._entry(look, view), epoch, read)

    def _as_it_was(
        self, look: _Look, view: str, epoch: int, recorded: bool
    ) -> tuple[Mapping[str, Any], int, int | None]:
        """The description of a view, as it was at ``epoch`` if it was edited after that; the epoch as of which to read
        its log; and the epoch of that edit, or None."""
        entry = self._entry(look, view)
        if (epoch >= look.present and not recorded) or entry["kind"] != "view":
            return entry, epoch, None
        versions, now = ViewVersions(look.history, look.before), described({view: entry})[view]
        if (former := versions.former(view, epoch, look.history.last, now, recorded)) is None:
            return entry, epoch, None
        version, as_of = as_it_was(view, epoch, former, now)
        return {**entry, "fingerprint": version.log, "key": list(version.key)}, as_of, former[1]

    def _read_former(
        self,
        look: _Look,
        view: str,
        entry: Mapping[str, Any],
        epoch: int,
        read: Callable[[ViewLog, int], T],
        gone: EpochUnavailable,
    ) -> T:
        """Return ``read(log, epoch)`` for the log that a view had before it was edited. Raises ``gone`` if no place has
        that log's rows as of the epoch."""
        with suppress(LogDamaged, LogUnreadable, EpochUnavailable):
            if (kept := self._log(look, view, entry)) is not None:
                return read(kept, epoch)
        try:
            return self._read_gathered(look, view, entry, epoch, read)
        except (LogDamaged, EpochUnavailable) as error:
            raise gone from error

    def _again(self, before: _Look) -> _Look:
        """Look at the log again, and stay at the epoch. Raises if the log does not have that epoch any more."""
        with self._lock:
            look = self._seen(before, before.epoch)
            now = look.chain.digest(before.epoch)
            if now != before.chain.digest(before.epoch):
                was_folded = now is None and before.epoch < look.history.first
                why = (
                    "is behind what the flow retains by now"
                    if was_folded
                    else "is not what it was: the flow was recovered without it"
                )
                raise EpochUnavailable(
                    f"log {self._places[0].uri}: epoch {before.epoch} {why}; refresh() goes to the last epoch",
                    epoch=before.epoch,
                )
            # The current description may be of edited views: keep the description that belongs to this epoch.
            look = replace(look, kept=before.kept, before=before.before, present=before.present)
            if self._look.epoch == before.epoch:
                self._look = look
            return look

    def _epoch(self, look: _Look, view: str, at: int | None) -> int:
        """The epoch as of which to read a view. Raises `EpochUnavailable` if there is no such epoch."""
        self._entry(look, view)
        epoch = look.epoch if at is None else at
        last = look.history.last
        if not 0 <= epoch <= last:
            there = f"epochs 0 to {last} are complete" if last >= 0 else "no epoch is complete yet"
            raise EpochUnavailable(f"view '{view}': there is no epoch {epoch}; {there}", view=view, epoch=at)
        if epoch > look.epoch:
            held = self._held(look, _trace(self._entry(look, view)))
            if epoch > held:
                raise self._behind(view, epoch, held)
            raise EpochUnavailable(
                f"view '{view}': this reader is at epoch {look.epoch}, and epoch {epoch} is later; refresh() goes to "
                "the last one",
                view=view,
                epoch=epoch,
                latest=look.epoch,
            )
        return epoch

    def _log(self, look: _Look, view: str, entry: Mapping[str, Any]) -> ViewLog | None:
        """The log of a view in a working directory; None if no working directory has it."""
        trace = _trace(entry)
        if (known := look.logs.get((view, trace))) is not None:
            return known
        for place in self._places:
            if isinstance(place, Working) and trace in place.traces():
                found = look.logs[view, trace] = self._described(
                    view, entry, place.layers_directory / trace, look.chain
                )
                return found
        return None

    def _described(self, view: str, entry: Mapping[str, Any], directory: Path, chain: Chain) -> ViewLog:
        try:
            fields = _fields(entry)
            spec = LogSpec(tuple(arrow_type(each.type) for each in fields), tuple(entry["key"]), False, view)
        except (KeyError, TypeError) as error:
            uri = self._places[0].uri
            raise LogDamaged(f"log {uri}: collections.json does not describe view '{view}'", path=uri) from error
        return ViewLog(str(directory), spec, fields, chain)

    def _read_gathered(
        self, look: _Look, view: str, entry: Mapping[str, Any], epoch: int, read: Callable[[ViewLog, int], T]
    ) -> T:
        """Return ``read(log, epoch)`` for the log of a view, in layers that are gathered from all places."""
        self._check_open()
        with self._gathered.using(_trace(entry), epoch, look.chain) as directory:
            return read(self._described(view, entry, directory, look.chain), epoch)

    # -- the end --------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise HoldfastError(f"log {self._places[0].uri}: this reader is closed; hf.open_log opens another")

    def close(self) -> None:
        """Close all files. A second call does no harm."""
        with self._lock:
            self._closed = True
            self._covers.forget()
        self._gathered.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"LogReader({self._flow!r}, {self._places[0].uri}, epoch {self.epoch}, views: {', '.join(self.views)})"


def _checked_name(view: str) -> str:
    return arguments.text("log", "the view", view, "its name")


def _checked(view: str, at: int | None) -> int | None:
    _checked_name(view)
    return None if at is None else arguments.epoch(f"view '{view}'", "at", at, 0)


def _fields(entry: Mapping[str, Any]) -> tuple[Field, ...]:
    return tuple(Field(*pair) for pair in entry["fields"])


def _trace(entry: Mapping[str, Any]) -> str:
    return f"{entry['fingerprint']}.rows"


def _present(rows: pa.Table, entry: Mapping[str, Any]) -> pa.Table:
    """The rows without deleted keys, which the log of a source with an order column also keeps."""
    if entry.get("kind") == "source" and "_deleted" in rows.column_names:
        return rows.filter(pc.invert(rows.column("_deleted"))).drop_columns(["_deleted"])
    return rows


def _package(name: str, what: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        raise HoldfastError(f"{what}: the package '{name}' is not installed; pip install {name}") from error
