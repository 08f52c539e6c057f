"""A branch of a flow: a separate flow that begins with the state of the parent flow as of an epoch (`Flow.branch`).

Its log is inside the parent's (`log/branches.py`), and its history is the parent's up to the root. After that it takes
the same input as the parent: `replay` runs the parent's recorded epochs on it, one by one, under the same numbers, with
their clocks, seeds and answers. With the same views it has the same rows as the parent, bit for bit; with other views,
the rows of a flow that had these views from the beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.connectors.recorded import for_branch
from holdfast.errors import DeclarationError, EpochUnavailable, InputError, UnknownName
from holdfast.flow import Flow
from holdfast.foundation import arguments, failpoints
from holdfast.frontend.view_order import in_order
from holdfast.inspect.compare_logs import compared
from holdfast.log.branch_location import BranchLocation
from holdfast.log.branches import BranchRecord, branch_flow, directory_of
from holdfast.log.location import open_location
from holdfast.results.comparison import Comparison
from holdfast.results.flow_results import Epoch
from holdfast.runtime.settings import working_directory
from holdfast.trace.pins import Pin, hold

if TYPE_CHECKING:
    from holdfast.coordinator.history import History
    from holdfast.coordinator.lineage import Lineage
    from holdfast.frontend.catalog import Catalog
    from holdfast.runtime.engine import Engine
    from holdfast.runtime.runner import Work


class Branch(Flow):
    """A flow that begins with the state of another flow, its main line, as of an epoch. Get one from `Flow.branch`.

    It is declared like any flow: you may change, add and drop views, declare functions again, and give it sinks of its
    own. Its sources take nothing by themselves: `replay` gives it the input that the main line took. It has its own
    inputs (``branch.input("orders", …)`` returns the existing one), and rows that you push to them are only in the
    branch; after it has taken such rows, `replay` is refused.

    Threads: as for `Flow`.
    """

    def __init__(self, trunk: Flow, record: BranchRecord) -> None:
        locations = [open_location(place) for place in trunk._places]
        super().__init__(
            branch_flow(trunk.name, record.name),
            [BranchLocation(location, record.name) for location in locations],
            trunk._session(),
            trunk._partitions,
            local=directory_of(trunk._local or working_directory(locations, make=False), record.name),
            on_loss=trunk._on_loss,
            max_clock_jump=None,
        )
        self._settings = trunk._settings
        self._expires = dict(trunk._expires)
        catalog = trunk._catalog
        # Each flow needs its own copy of a static table's source, which notes whether that flow has taken it.
        planned = {
            name: replace(each, statics={table: copy(source) for table, source in each.statics.items()})
            for name, each in catalog.planned.items()
        }
        sources = {name: for_branch(source) for name, source in catalog.sources.items()}
        self._catalog = replace(catalog, sources=sources, planned=planned)
        self._trunk = trunk
        self._record: BranchRecord = record
        self._inherited = self._catalog
        """The main line's declarations when this handle was made, or when the branch was last promoted: differences to
        them are the branch's own changes."""

    @property
    def root(self) -> int:
        """The last epoch that the branch has in common with its main line. From any thread."""
        return self._record.root

    def replay(self, to: int | None = None, *, on_epoch: Callable[[Epoch], None] | None = None) -> int:
        """Run the epochs on the branch that the main line has run since, up to ``to`` (None: its last epoch now), with
        the same input, clocks, seeds and answers. Returns the number of epochs that were run. ``on_epoch`` is called
        with each epoch; `stop` ends the replay after the running epoch, and another call goes on.

        Nondeterministic functions are not called again, except those that the main line did not have. Raises
        `EpochUnavailable` if the main line has not run ``to`` yet, or if its record of an epoch was released.

        From any thread; other threads have their turns between epochs. On a cluster, rows that code pushed are read
        between two epochs of the main line. Not from code that an epoch calls."""
        if to is not None:
            to = arguments.whole(f"branch '{self._record.name}'", "to", to, 0)
        if on_epoch is not None:
            arguments.callable_with(f"branch '{self._record.name}'", "on_epoch", on_epoch, "one argument, the Epoch", 1)
        done = 0
        with self._running():
            while not self._stopping:
                result, to = self._replay_one(to)
                if result is None:
                    break
                done += 1
                if on_epoch is not None:
                    on_epoch(result)
        return done

    def promote(self) -> Epoch:
        """Give the main line the functions and views of the branch, from its next epoch on. The branch replays the
        epochs that it lacks, its functions and views are declared on the main line, and one epoch is run there, in
        which each sink is given the difference, exactly once. State that the branch has computed is shared, not
        computed again. The branch stays.

        Only changes that were made on the branch are promoted: functions and views that the main line has declared,
        changed or dropped since stay as they are, unless the branch has changed or dropped them, too.

        This is an edit of the main line: if the process dies in the middle, the main line has the old views or the new
        ones, as the next process declares them. So your program must declare the new views from then on.

        A branch of a branch is promoted to its parent branch. Its views are declared there, and no epoch is run: sinks
        of the parent branch are given the difference with the next epoch that it replays.

        From any thread; waits for the running epoch of both. Not from code that an epoch calls."""
        trunk = self._trunk
        with trunk._turns.taken("promote()"):
            main = trunk._started()
            main.make_exact()  # epochs that a repair runs again must be replayed, too
            self.replay()
            with self._turns.taken("promote()"):
                engine = self._started()
                self._check_fed(engine, main.history)
                catalog = self._promoted()
                main.check_sinks(catalog.views)
                hand_over = engine.hand_over(main) if _took_the_same(engine.history, main.history, self.root) else None
                with _unless_it_fails(trunk):
                    trunk._declared(catalog)
                    if hand_over is not None:
                        hand_over()
                    failpoints.reach("promote.linked")
                    main = trunk._started()
                self._inherited = self._catalog
            if isinstance(trunk, Branch):
                return Epoch(None)  # after an epoch that its main line did not run, it could not replay any more
            with trunk._members.watched(lambda: main.safe), trunk._telling(main):
                result = main.step()
            trunk._tell_epoch(result)
        return result

    def _with_branches(self) -> Iterator[Branch]:
        """The handles of the branches of this branch, at any depth, and then this branch itself."""
        for each in list(self._branches.values()):
            yield from each._with_branches()
        yield self

    def _promoted(self) -> Catalog:
        """The main line's declarations, with the functions and views that were changed on the branch. Views that only
        the main line has, or that only it has changed, stay as they are."""
        found, own, planner = self._trunk._catalog, self._catalog, self._trunk._planner()
        inherited = self._inherited
        for name, function in own.functions.items():
            if inherited.functions.get(name) is not function and found.functions.get(name) is not function:
                found = found.with_function(function, planner)
        changed = {name for name, query in own.queries.items() if inherited.queries.get(name) is not query}
        # A view that a changed view reads, and that the main line has dropped since, comes back with it.
        needed = set(changed)
        for name in reversed(in_order({name: each.reads for name, each in own.planned.items()})):
            if name in needed:
                needed |= own.planned[name].reads & own.planned.keys()
        for name in own.planned:
            lacks = name in changed or (name in needed and name not in found.planned)
            if lacks and found.queries.get(name) is not own.queries[name]:
                found = found.with_view(name, own.queries[name], planner)
        for name in reversed(list(found.planned)):
            if name in inherited.planned and name not in own.planned:
                if any(view == name for view, _ in self._trunk._sinks):
                    raise DeclarationError(
                        f"branch '{self._record.name}': it has no view '{name}', and a sink of the main line takes its "
                        f"changes; flow.unsink('{name}') first",
                        view=name,
                    )
                found = found.without_view(name)
        return found

    def _check_fed(self, engine: Engine, history: History) -> None:
        """Raise `DeclarationError` unless the branch took exactly the same input as the main line."""
        self._check_root(history)
        for epoch in range(self.root + 1, engine.last + 1):
            if epoch > history.last or not _is_fed(engine.history[epoch], history[epoch]):
                raise self._own_epoch(engine.history[epoch])

    def _check_root(self, history: History) -> None:
        """Raise `EpochUnavailable` if the main line has lost the epoch with which the branch begins, and has another
        epoch of that number now."""
        if history.digest(self.root) != self._record.digest:
            raise EpochUnavailable(
                f"branch '{self._record.name}': '{self._trunk.name}' has lost epoch {self.root}, with which the branch "
                "begins, and went on from before: what it took since is not the branch's",
                epoch=self.root,
            )

    def _own_epoch(self, own: Lineage) -> DeclarationError:
        how = "took input of its own" if own.offers else "was run by step() or run(), and not by replay()"
        return DeclarationError(
            f"branch '{self._record.name}': epoch {own.epoch} {how}, so what the main line took in it is missing; make "
            "another branch",
            branch=self._record.name,
            epoch=own.epoch,
        )

    def _replay_one(self, to: int | None) -> tuple[Epoch | None, int]:
        """Run the next recorded epoch, if there is one up to ``to``. Returns it (None: there is none), and the last
        epoch to run."""
        trunk = self._trunk._opened("replay()")
        history = trunk.history
        to = history.last if to is None else to
        if to > history.last:
            raise EpochUnavailable(
                f"branch '{self._record.name}': epoch {to} is not there yet; the main line's last is {history.last}",
                epoch=to,
                latest=history.last,
            )
        while True:
            with self._turns.taken("replay()"):
                engine = self._started()
                if engine.last >= to:
                    last = engine.last
                    if max(self.root, history.first) < last <= history.last and not _is_fed(
                        engine.history[last], history[last]
                    ):
                        raise self._own_epoch(engine.history[last])
                    return None, to
                recorded, partitions = self._recorded(engine, history), engine.partitions
            with self._recorded_work(recorded, partitions) as work:
                if (result := self._run_recorded(recorded, work)) is not None:
                    return result, to

    def _run_recorded(self, recorded: Lineage, work: Sequence[Work]) -> Epoch | None:
        """Run a recorded epoch of the main line; None if another thread has run it meanwhile."""
        with self._turns.taken("replay()"):
            engine = self._started()
            if engine.last + 1 != recorded.epoch:
                return None
            with self._members.watched(lambda: engine.safe), self._telling(engine), self._explaining(recorded):
                result = engine.run_recorded(recorded, work)
            self._tell_epoch(result)
        return result

    @contextmanager
    def _recorded_work(self, recorded: Lineage, partitions: int) -> Iterator[list[Work]]:
        """Yield the input of an epoch of the main line. If it is read from members, a loss of members is repaired
        first, so this takes the main line's turn. That turn is taken before the branch's, as in `promote`."""
        trunk = self._trunk
        engine = trunk._opened("replay()")
        with ExitStack() as reading:
            if engine.reads_members(recorded):
                with trunk._turns.taken("replay()", looks=True):
                    main = trunk._started()
                    with trunk._members.watched(lambda: main.safe), trunk._telling(main):
                        work = reading.enter_context(main.recorded_work(recorded, partitions))
            else:
                work = reading.enter_context(engine.recorded_work(recorded, partitions))
            yield work

    @contextmanager
    def _explaining(self, recorded: Lineage) -> Iterator[None]:
        """Explain the error of a source that cannot read an old offer: it may have been told to forget it before the
        branch was made."""
        try:
            yield
        except InputError as error:
            if recorded.epoch > self._record.released:
                raise
            raise EpochUnavailable(
                f"branch '{self._record.name}': what the main line took in epoch {recorded.epoch} cannot be read any "
                f"more: it was released before the branch was made. From epoch {self._record.released} on a branch can "
                f"be fed; one that is made before an epoch is safe keeps its input ({error})",
                epoch=recorded.epoch,
                earliest=self._record.released,
            ) from error

    def _recorded(self, engine: Engine, history: History) -> Lineage:
        """The main line's record of the epoch that comes next on the branch. Raises `EpochUnavailable` if it was
        released."""
        last = engine.last
        if last + 1 <= history.first:
            raise EpochUnavailable(
                f"branch '{self._record.name}': the record of epoch {last + 1} of '{self._trunk.name}' was released; a "
                f"branch from epoch {history.first} on can be fed. retain={history.last - last - 1} (or more) would "
                "have kept it",
                epoch=last + 1,
                earliest=history.first,
            )
        self._check_root(history)
        if last > self.root and not _is_fed(engine.history[last], history[last]):
            raise self._own_epoch(engine.history[last])
        return history[last + 1]


@contextmanager
def _unless_it_fails(trunk: Flow) -> Iterator[None]:
    """A context for declaring on the main line and opening it: if that fails, the declarations before are restored."""
    before = trunk._catalog
    try:
        yield
    except Exception:
        trunk._catalog, trunk._ready = before, None
        raise


def _is_fed(own: Lineage, recorded: Lineage) -> bool:
    """Whether an epoch of a branch took at least the input of the main line's epoch, with the same clock and seed."""
    return own.clock == recorded.clock and own.seed == recorded.seed and recorded.offers.items() <= own.offers.items()


def _took_the_same(own: History, recorded: History, root: int) -> bool:
    """Whether every epoch since the root took exactly the input of the main line's epoch."""
    return all(own[epoch].offers == recorded[epoch].offers for epoch in range(root + 1, own.last + 1))


def compare(
    here: Flow, there: Flow, view: str, at: int | None = None, *, by: str | Sequence[str] | None = None
) -> Comparison:
    """The differences of ``view`` between two flows, such as a flow and its branch, as of epoch ``at`` (None: the last
    epoch that both have): rows that only one of them has, and rows that were changed. ``by`` names the columns that
    identify a row; by default the columns by which the view is kept (for an aggregate, those that it groups by).

    Cost: both views are read once. From any thread; waits for the running epochs."""
    for one in (here, there):
        if not isinstance(one, Flow):
            arguments.refuse("compare", "what to compare", "a flow or a branch", one)
        try:
            one._check_view(view)
        except UnknownName as error:
            raise UnknownName(f"compare: flow '{one.name}': {error}", **error.fields) from None
    if at is not None:
        at = arguments.whole(f"view '{view}'", "at", at, 0)
    if by is not None:
        columns = [by] if isinstance(by, str) else by
        if not isinstance(columns, list | tuple) or not columns or not all(isinstance(one, str) for one in columns):
            arguments.refuse(f"view '{view}', compare", "by", "a column, or a list of columns", by)
        if "" in columns or len(set(columns)) < len(columns):
            arguments.refuse(f"view '{view}', compare", "by", "columns, each once", by)
    lasts = []
    for one in (here, there):
        with one._turns.taken("compare()", looks=True):
            lasts.append(one._looking(view).last)
    epoch = min(lasts) if at is None else at
    found, reading = [], [True]
    try:
        for one in (here, there):
            with one._turns.taken("compare()", looks=True):
                engine = one._looking(view)  # a new engine, if it was declared again while the other flow was opened
                wanted = epoch if epoch >= 0 or at is not None else None
                kept, then = engine.views.readable(view, wanted, recorded=at is not None)
                # Epochs and merges go on while it is read.
                hold(kept.directory, Pin(then, kept.chain.end), lambda: bool(reading))
                found.append((kept, then))
        result = compared(found[0], found[1], view, epoch, _short(here, there), by)
    finally:
        reading.clear()
    from holdfast.spark.comparison_frame import comparison_frame

    return replace(result, frame=comparison_frame(here._session(), result.rows, found[0][0].fields))


def _short(here: Flow, there: Flow) -> tuple[str, str]:
    """The names of the two flows, for messages: ``main`` and the branch's short name for a flow and its branch."""
    first, second = ("main" if isinstance(there, Branch) and there._trunk is here else here.name), there.name
    return first, there._record.name if isinstance(there, Branch) and first == "main" else second
