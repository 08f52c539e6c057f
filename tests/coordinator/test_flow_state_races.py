"""Every race that was ever fixed and that the state of a flow decides, as a list of events: what must come out.

Each test names where its race was found: a commit (its subject), a line of the changelog, or the test that shows it on
a whole flow. Races of files, leases, sockets and Spark itself are not the state's to decide; they are tested in
`tests/log`, `tests/standby`, `tests/spark` and `tests/cluster`. (It is long since it is the list of all of them.)
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from coordinator.flow_states import EDITED, MINE, QUARTER, RANGES, VERSION, Case, layer
from holdfast.coordinator import events, instructions
from holdfast.coordinator.claim import Claim
from holdfast.coordinator.copy_plan import COMPACT_FROM, Copied, Failed, Holding
from holdfast.coordinator.durability_settings import DurabilitySettings
from holdfast.coordinator.flow_state import Mode
from holdfast.coordinator.folded import Folded
from holdfast.coordinator.history import History
from holdfast.coordinator.instructions import (
    AdvanceSources,
    AwaitSafe,
    BeginBranch,
    CatchUp,
    CheckClaim,
    Commit,
    CompactCopies,
    CountEpoch,
    Enrol,
    ForgetTraces,
    HandOver,
    HurryRounds,
    Instruction,
    Look,
    MergeCopies,
    MergeLineage,
    NoteFailure,
    NoteTrouble,
    Refresh,
    ReleaseInput,
    RemoveCopies,
    RemoveLayers,
    RepairLayers,
    RequestCopies,
    RequestRound,
    SetAside,
    ShipLayers,
    Stop,
    WriteLineage,
    WriteRoster,
)
from holdfast.coordinator.lineage import Lineage, from_lines
from holdfast.coordinator.retention import Bound, Retention
from holdfast.errors import Fenced, LogDamaged, StoreError
from holdfast.guarantees.strategies import SynchronousLog
from holdfast.trace.name import ALL

OTHER = Claim(3, "c" * 16)
Kind = TypeVar("Kind")


def of_kind(kind: type[Kind], found: list[Instruction]) -> Kind:
    """The one instruction of a kind."""
    (one,) = [each for each in found if isinstance(each, kind)]
    return one


def has(kind: type[Any], found: list[Instruction]) -> bool:
    return any(isinstance(each, kind) for each in found)


# -- epochs that count, fail, or are interrupted ----------------------------------------------------------------------


def test_a_round_that_begins_while_an_epoch_is_counted_finds_it_in_the_chain_or_nowhere() -> None:
    """Commit "engine: the chain has an epoch before the history does"; tests/simulator/test_counting.py."""
    case = Case()
    chains: list[tuple[int, int]] = []

    class Watched(History):
        def append(self, lineage: Lineage) -> None:
            chains.append((lineage.epoch, case.state.epochs.chain().end))
            super().append(lineage)

    case.state.history.__class__ = Watched
    case.epochs(1)
    lineage = case.begin(1)
    case.state.handle(events.EpochRan(lineage))
    assert [each.upto for each in case.seen_ships()] == [0], "it is not copied before it counts"
    case.ended(0)
    case.state.handle(events.EpochWritten(lineage))
    assert [each.upto for each in case.seen_ships()] == [1]
    assert chains == [(0, 0), (1, 1)], "the chain knows an epoch when the history gets it"


def test_an_epoch_that_was_interrupted_while_it_was_counted_is_not_guessed_at() -> None:
    """tests/simulator/test_failing_epochs.py: "an engine that was interrupted while counting does not guess"."""
    case = Case()
    lineage = case.begin()
    assert case.state.handle(events.EpochRan(lineage)) == [CountEpoch(lineage)]
    assert case.state.epochs.is_torn, "the line may be in the stash, or not"
    case.state.handle(events.EpochWritten(lineage))
    assert case.state.epochs.is_torn, "it is, and not everybody knows"
    case.state.handle(events.EpochCounted(lineage, 10))
    assert not case.state.epochs.is_torn


def test_an_epoch_whose_line_could_not_be_written_leaves_layers_to_remove_until_they_are_gone() -> None:
    """tests/simulator/test_failing_epochs.py: "layers of a failed epoch that cannot be removed are said and removed
    later"; commit "stash: a file that cannot be opened after a fold loses no line"."""
    case = Case()
    first = case.begin(1)
    case.state.handle(events.EpochRan(first))
    assert case.state.handle(events.EpochFailed(first)) == [RemoveLayers(first.digest)]
    assert not case.state.epochs.is_torn, "the stash said that it has no line"
    second = case.begin(2)
    found = case.state.handle(events.EpochFailed(second))
    assert found == [RemoveLayers(digest) for digest in sorted([first.digest, second.digest])], (
        "the first is still there"
    )
    case.state.handle(events.LayersRemoved(first.digest))
    assert case.state.remaining() == [RemoveLayers(second.digest)]
    assert case.state.last == -1


def test_an_epoch_that_begins_again_is_another_one() -> None:
    """The trap "times of the past": an epoch number is never used again under the same digest."""
    case = Case()
    first = case.begin(1)
    case.state.handle(events.EpochFailed(first))
    second = case.begin(2)
    assert second.epoch == first.epoch and second.digest != first.digest
    with pytest.raises(RuntimeError, match="is not the one that runs"):
        case.state.handle(events.EpochRan(first))


def test_nothing_is_seen_of_an_epoch_before_it_is_safe_where_copies_are_waited_for() -> None:
    """Strategy synchronous_log: sources, then copies, then the wait, then sinks."""
    case = Case(sinks=[-1], settings=DurabilitySettings(SynchronousLog()))
    lineage = case.begin()
    assert case.count(lineage) == [AdvanceSources(lineage), RequestCopies(), AwaitSafe(0), Commit(0, 0)]


# -- copies, the safe point, and who may release input ----------------------------------------------------------------


def test_lineage_goes_before_layers_and_claims_are_asked_after_both() -> None:
    """Commit "Input is released only after the claims were looked at"."""
    case = Case()
    case.epochs(2)
    assert case.due() == [Look(0, ("t",))]
    found = case.seen(0, Holding({}, -1, case.identities[0], (1, 0)))
    assert [type(each) for each in found] == [WriteLineage, ShipLayers]
    assert case.shipped(0, Copied(0, "t", layer(0, 1), 100)) == [Look(0, ("t",))]
    assert case.seen(0, case.holding(0, 1)) == [CheckClaim(0)]
    assert (case.state.copies.safe, case.state.copies.cleared) == (1, -1), "safe, and not to be released yet"
    assert case.state.release() == ReleaseInput(-1)
    case.claimed(0)
    assert case.state.release() == ReleaseInput(1)


def test_a_claim_that_comes_between_the_copies_and_the_question_stops_the_release() -> None:
    """tests/durability/test_side_by_side.py: "input is released only when the locations that count were asked"."""
    case = Case(locations=2, min_replicas=2)
    case.epochs(1)
    for location in (0, 1):
        case.due(location)
        case.seen(location, Holding({}, -1, case.identities[location], (1, 0)))
        case.shipped(location)
        case.seen(location, case.holding(location, 0))
    case.claimed(0)
    assert case.state.copies.safe == 0
    (stop,) = case.claimed(1, OTHER)
    assert isinstance(stop, Stop) and "term 3" in str(stop.error) and "memory:1" in str(stop.error)
    assert case.state.release().upto == -1, "the other driver may not have seen epoch 0 at the first location"
    assert case.due(0) == [], "nothing is copied any more"


def test_what_one_location_confirmed_before_and_another_confirms_later_is_released_together() -> None:
    """Commit "replication: write locations side by side, each in rounds of its own"."""
    case = Case(locations=2, min_replicas=2)
    case.epochs(1)
    case.round(0, 0)
    case.epochs(1)
    case.round(1, 1)
    assert (case.state.copies.safe, case.state.copies.cleared) == (0, 0)
    case.round(0, 1)
    assert case.state.copies.cleared == 1


def test_the_safe_point_waits_for_the_slowest_only_if_it_must() -> None:
    """tests/durability/test_side_by_side.py: "the safe point does not wait for the slowest location"."""
    fast, both = Case(locations=2, min_replicas=1), Case(locations=2, min_replicas=2)
    for case in (fast, both):
        case.epochs(1)
        case.due(1)  # and no answer
        case.round(0, 0)
    assert (fast.state.copies.safe, both.state.copies.safe) == (0, -1)


def test_what_was_promised_is_not_taken_back_when_a_copy_is_lost() -> None:
    """DESIGN, invariant 5; CHANGELOG: "A log location that was emptied … counts for the safe point only then"."""
    case = Case()
    case.epochs(3)
    case.round(0, 2)
    case.state.handle(events.LocationsSeen({0: case.holding(0, 0)}))
    assert case.state.copies.safe == 2
    (ship,) = of_kind(ShipLayers, case.due()).ships
    assert (ship.after, ship.upto) == (0, 2), "and it is copied again"


def test_a_location_that_lost_copies_since_its_last_round_is_found_out_at_the_end_of_the_next() -> None:
    """Commit "A round of copying takes as few operations after each other as it can": the first listing is left out."""
    case = Case()
    case.epochs(1)
    case.round(0, 0)
    case.epochs(1)
    found = case.due()
    assert [(ship.after, ship.upto) for ship in of_kind(ShipLayers, found).ships] == [(0, 1)], "no listing first"
    case.shipped(0)
    gone = Holding({"t": {layer(1, 1): 100}}, 1, case.identities[0], (1, 0))
    assert case.seen(0, gone) == [CheckClaim(0)]
    assert case.state.copies.safe == 0, "what is there does not reach back"
    case.claimed(0)
    assert case.ended(0) == [RequestRound(0)]
    (ship,) = of_kind(ShipLayers, case.due()).ships
    assert (ship.after, ship.upto) == (-1, 1), "all of it, as one layer"


def test_a_location_that_fails_in_the_middle_of_a_round_is_listed_first_in_the_next() -> None:
    """tests/durability/test_side_by_side.py: "a location that fails makes nobody wait for the others"."""
    case = Case()
    case.epochs(1)
    case.round(0, 0)
    case.epochs(1)
    case.due()
    error = StoreError("away")
    assert case.shipped(0, Failed(0, "t", error)) == [NoteTrouble(0, error), Look(0, ("t",))]
    case.state.handle(events.LocationFailed(0))
    assert case.ended(0, troubled=True) == [RequestRound(0)]
    assert case.due() == [Look(0, ("t",))]
    assert case.state.copies.safe == 0


def test_a_round_that_breaks_off_knows_nothing_of_its_location() -> None:
    """Commit "replication: write locations side by side": tasks that raise end the round, and the next one lists."""
    case = Case()
    case.epochs(1)
    case.round(0, 0)
    case.epochs(1)
    assert not has(Look, case.due())
    assert case.ended(0) == [RequestRound(0)], "a member could not be reached: nothing is known of what was copied"
    assert case.due() == [Look(0, ("t",))]


def test_a_round_that_is_overtaken_by_epochs_copies_up_to_where_it_began() -> None:
    """Commit "Rounds of copying leave a busy flow its cores": epochs never wait, and the next round takes them all."""
    case = Case()
    case.epochs(1)
    case.due()
    case.epochs(3)
    found = case.seen(0, Holding({}, -1, case.identities[0], (1, 0)))
    assert [ship.upto for ship in of_kind(ShipLayers, found).ships] == [0]
    case.shipped(0)
    case.seen(0, case.holding(0, 0))
    case.claimed(0)
    assert case.ended(0) == [], "it did what it was to do; the epochs since have asked for another round"
    assert [(ship.after, ship.upto) for ship in of_kind(ShipLayers, case.due()).ships] == [(0, 3)]


def test_a_layer_is_removed_only_after_what_replaces_it_was_seen() -> None:
    """`coordinator/copy_rounds.py`, the second of its two orders; tests/coordinator/test_replication.py."""
    case = Case()
    case.epochs(3)
    case.due()
    pieces = [layer(0, 0), layer(1, 1), layer(2, 2)]
    case.seen(0, Holding({"t": dict.fromkeys(pieces, 10)}, 2, case.identities[0], (1, 0)))
    case.shipped(0)
    case.seen(0, Holding({"t": dict.fromkeys(pieces, 10)}, 2, case.identities[0], (1, 0)))
    assert not has(RemoveCopies, case.claimed(0)), "a merge may be under way: nothing replaces them yet"
    case.ended(0)
    case.epochs(1)
    case.due()
    case.shipped(0)
    merged = {**dict.fromkeys(pieces, 10), layer(0, 2): 30, layer(3, 3): 10}
    case.seen(0, Holding({"t": merged}, 3, case.identities[0], (1, 0)))
    gone = of_kind(RemoveCopies, case.claimed(0)).layers
    assert set(gone) <= {("t", each) for each in pieces} and ("t", layer(1, 1)) in gone


def test_a_damaged_copy_is_set_aside_and_the_location_listed_anew() -> None:
    """CHANGELOG: "a layer is set aside only if its bytes are wrong at a second look"."""
    case = Case()
    case.epochs(1)
    case.round(0, 0)
    case.epochs(1)
    case.due()
    case.shipped(0)
    case.seen(0, case.holding(0, 1))
    case.claimed(0)
    damaged = Failed(0, "t", LogDamaged("bad", path="x"), layer(0, 0))
    assert case.shipped(0, damaged) == [SetAside(0, "t", layer(0, 0))]
    case.ended(0)
    assert case.due() == [Look(0, ("t",))], "what it holds is not known any more"


def test_a_partition_on_its_way_to_another_member_is_no_damage_unless_it_stays_away() -> None:
    """Commit "A round that meets a partition on its way to another member is no damage"."""
    missing = Failed(-1, "t", LogDamaged("layers are missing"))
    case = Case(members=["m", "n"])
    case.epochs(1)
    case.due()
    case.seen(0, Holding({}, -1, case.identities[0], (1, 0)))
    assert case.shipped(0, missing) == [Look(0, ("t",))], "it may just have moved"
    case.state.handle(events.LocationFailed(0))
    case.ended(0)
    case.due()
    case.seen(0, Holding({}, -1, case.identities[0], (1, 0)))
    assert case.shipped(0, missing) == [RepairLayers((missing.error,)), Look(0, ("t",))]


def test_a_layer_that_is_missing_where_one_host_keeps_all_is_damage_at_once() -> None:
    """The other side of the same commit."""
    missing = Failed(-1, "t", LogDamaged("layers are missing"))
    case = Case()
    case.epochs(1)
    case.due()
    case.seen(0, Holding({}, -1, case.identities[0], (1, 0)))
    assert case.shipped(0, missing)[0] == RepairLayers((missing.error,))


def test_a_local_disk_that_fails_is_no_trouble_of_the_location() -> None:
    """Trap "an error is not damage"; CHANGELOG: "EACCES, EMFILE, EIO" are tried again."""
    error = StoreError("too many open files")
    case = Case()
    case.epochs(1)
    case.due()
    case.seen(0, Holding({}, -1, case.identities[0], (1, 0)))
    assert case.shipped(0, Failed(-1, "t", error)) == [NoteFailure(0, error), Look(0, ("t",))]


def test_a_driver_whose_lease_is_lost_copies_and_confirms_nothing_more() -> None:
    """tests/standby/test_leading.py: "a flow that loses its lease stops before the next epoch counts"."""
    case = Case()
    case.epochs(1)
    case.due()
    case.seen(0, Holding({}, -1, case.identities[0], (1, 0)))
    case.shipped(0)
    case.seen(0, case.holding(0, 0))
    error = Fenced("the lease is lost")
    assert case.state.handle(events.DriverFenced(error)) == [Stop(error)]
    assert case.claimed(0) == [], "its own claim is still the greatest, and that does not help"
    assert case.state.release().upto == -1
    assert case.due() == [] and case.state.fenced is error


def test_a_claim_of_an_earlier_driver_that_was_not_removed_changes_nothing() -> None:
    """Commit "One record for all damage that a step meets; a location that refuses its claim is done without"."""
    case = Case()
    assert case.state.handle(events.ClaimSeen(0, Claim(1, "f" * 16))) == []
    assert case.state.handle(events.ClaimSeen(0, None)) == []
    assert case.state.fenced is None


def test_input_waits_while_too_much_is_unsafe_and_no_longer() -> None:
    """tests/durability/test_storage.py: "a flow waits when too much is unsafe and goes on when it is not"."""
    case = Case(settings=DurabilitySettings(bound=Bound(bytes=25)))
    case.epochs(2)
    assert case.state.copies.has_room
    case.epochs(1)
    assert not case.state.copies.has_room and case.state.copies.unsafe == (30, 3)
    case.round(0, 0)
    assert case.state.copies.has_room and case.state.copies.unsafe == (20, 2)


# -- which locations count --------------------------------------------------------------------------------------------


def test_a_location_that_has_everything_gets_the_next_roster_too() -> None:
    """Commit "enrolment: bring the next roster to locations that lag in nothing else"; tests/faults/test_errors.py."""
    case = Case(locations=2, min_replicas=1, roster=[0])
    case.epochs(1)
    assert case.round(0, 0) == [], "it has all, and there is no other roster"
    case.due(1)
    case.seen(1, Holding({}, -1, case.identities[1], (1, 0)))
    case.shipped(1)
    case.seen(1, case.holding(1, 0))
    roster = of_kind(WriteRoster, case.claimed(1)).roster
    assert set(roster.locations) == set(case.identities.values())
    case.state.handle(events.RosterWritten(1, roster))
    assert RequestRound(0) in case.ended(1), "the first location would have no round any more"
    assert not case.state.copies.enrolment.counts(1), "not in force before the first one has it"
    case.due(0)
    case.shipped(0)
    case.seen(0, case.holding(0, 0))
    assert of_kind(WriteRoster, case.claimed(0)).roster == roster
    case.state.handle(events.RosterWritten(0, roster))
    assert case.state.copies.enrolment.counts(1) and case.ended(0) == []


def test_a_location_that_is_emptied_while_the_flow_runs_is_filled_before_it_counts() -> None:
    """CHANGELOG: "A log location that was emptied or made again, also while the flow runs, is recognised"."""
    case = Case(locations=2, min_replicas=1)
    case.epochs(1)
    case.round(0, 0)
    case.state.handle(events.LocationsSeen({1: case.holding(1, 0)}))
    case.epochs(1)
    case.due(1)
    found = case.seen(1, Holding({}, -1, "", (-1, -1)))
    enrol = of_kind(Enrol, found)
    assert enrol.was_known and enrol.identity not in case.identities.values()
    assert [type(each) for each in found] == [Enrol, WriteLineage, ShipLayers]
    case.shipped(1)
    case.seen(1, replace(case.holding(1, 1), location=enrol.identity))
    assert case.state.copies.safe == 0, "under the roster before, this location does not exist"


def test_a_copy_of_a_location_becomes_a_location_of_its_own() -> None:
    """tests/durability/test_losses.py, of the same name."""
    case = Case(locations=2)
    case.epochs(1)
    case.due(1)
    found = case.seen(1, Holding({}, -1, case.identities[0], (1, 0)))
    assert of_kind(Enrol, found).identity not in case.identities.values()


def test_a_location_that_cannot_be_enrolled_is_enrolled_by_the_next_round() -> None:
    """tests/durability/test_losses.py: "the first location may be lost while the flow runs"."""
    case = Case()
    case.epochs(1)
    case.due()
    assert has(Enrol, case.seen(0, Holding({}, -1, "", (-1, -1))))
    case.state.handle(events.LocationFailed(0))
    assert case.ended(0, troubled=True) == [RequestRound(0)]
    case.due()
    assert has(Enrol, case.seen(0, Holding({}, -1, "", (-1, -1))))


def test_what_a_round_reads_is_known_while_it_runs() -> None:
    """Merging beside it keeps the local layers that the round reads: `Merging` in `runtime/merging.py`."""
    case = Case()
    case.epochs(3)
    assert case.state.copies.copying == []
    case.due()
    case.epochs(2)
    assert case.state.copies.copying == [(-1, 2)]
    case.ended(0, troubled=True)
    assert case.state.copies.copying == []


# -- sinks ------------------------------------------------------------------------------------------------------------


def test_a_commit_that_raised_may_have_been_made() -> None:
    """Commit "delivery: ask before a commit is made again, close every sink"; tests/connectors/test_delivery.py."""
    case = Case(sinks=[-1])
    assert of_kind(Commit, case.epochs(1)) == Commit(0, 0)
    case.state.handle(events.CommitBegan(0))  # and it raises
    assert case.state.sinks.is_doubtful(0) and not case.state.sinks.has_all(0, 0)
    assert of_kind(CatchUp, case.epochs(1)) == CatchUp(0, 1), "what it lacks comes first, from the log"
    case.state.handle(events.SinkAnswered(0, 0))
    assert not case.state.sinks.is_doubtful(0)


def test_a_sink_that_lags_does_not_get_an_epoch_out_of_turn() -> None:
    """tests/connectors/test_delivery.py; two sinks, of which one failed before."""
    case = Case(sinks=[-1, -1])
    case.epochs(1)
    case.state.handle(events.CommitBegan(0))
    case.state.handle(events.SinkAnswered(0, 0))
    found = case.epochs(1)
    assert [each for each in found if isinstance(each, Commit | CatchUp)] == [Commit(0, 1), CatchUp(1, 1)]


def test_a_commit_carries_the_lineage_that_is_nowhere_else() -> None:
    """Invariant 6; tests/simulator/test_broken_builds.py: "lineage that is not forwarded to the sinks is noticed"."""
    case = Case()
    case.epochs(3)
    assert [each.epoch for each in from_lines(case.state.uncommitted(2))] == [0, 1, 2]
    case.state.handle(events.LocationsSeen({0: case.holding(0, -1, lineage=1)}))
    assert [each.epoch for each in from_lines(case.state.uncommitted(2))] == [2], "a round has written the others"
    assert [each.epoch for each in from_lines(case.state.uncommitted(1))] == [1], "never nothing"


def test_a_sink_that_keeps_lineage_is_carried_only_what_is_new_and_without_a_gap() -> None:
    """CHANGELOG: "`keeps_lineage` … have a commit carry only the lineage that the sink lacks"."""
    case = Case(sinks=[-1])
    case.epochs(4)
    case.state.handle(events.SinkAnswered(0, 1, carried=2))
    assert case.state.sinks.held[0] == (0, 1)
    assert [each.epoch for each in from_lines(case.state.uncommitted(2, case.state.sinks.held[0]))] == [2]
    case.state.handle(events.SinkAnswered(0, 3, carried=1))
    assert case.state.sinks.held[0] == (3, 3), "there is a gap: what it held before does not count"
    assert [each.epoch for each in from_lines(case.state.uncommitted(3, case.state.sinks.held[0]))] == [0, 1, 2, 3]


def test_a_function_that_cannot_tell_what_it_has_is_not_asked_for_what_was_folded() -> None:
    """Commit "delivery: bring back the last change for sinks that cannot tell"."""
    case = Case(sinks=[None])
    case.epochs(4)
    assert case.state.edits.behind({"v"}, {}) == 2, "the last epoch again: the log is needed from the one before on"
    case.state.handle(events.SinkStarted(0, 3))
    assert case.state.edits.behind({"v"}, {}) == 3
    assert case.state.edits.behind({"v"}, {0: 2}) == 1, "it has lost epoch 2 of what it had"


# -- views that are edited --------------------------------------------------------------------------------------------


def edited(has: int | None = 0) -> Case:
    """A flow that is opened with view "v" edited, whose sink has an epoch of what it was."""
    case = Case(sinks=[has], declared=EDITED, before=VERSION)
    first = Lineage(0, "0" * 16, {}, 1000, 0, 1)
    case.state.epochs.begin({}, 1000, 0)
    case.state.history.append(first)
    case.state.epochs = type(case.state.epochs)(case.state.history, MINE.term)
    return case


def test_what_a_view_was_must_be_safe_before_an_epoch_changes_it() -> None:
    """Commit "The simulator edits views; what a view was is safe before it changes"."""
    case = edited()
    assert case.state.edits.is_awaited() and case.state.copies.former == {"log.rows": 0}
    case.state.handle(events.LocationsSeen({0: case.holding(0, 0)}))
    assert case.state.copies.former_safe == frozenset(), "the new log is there, the one before is not"
    case.due()
    found = case.seen(0, case.holding(0, 0))
    assert [(ship.trace, ship.upto) for ship in of_kind(ShipLayers, found).ships] == [("log.rows", 0)]


def test_an_edit_looks_first_whether_what_was_is_safe_already() -> None:
    """Commit of that name."""
    case = edited()
    case.state.handle(events.LocationsSeen({0: case.holding(0, 0, **{"log.rows": 0})}))
    assert case.state.copies.former_safe == {"log.rows"}


def test_no_epoch_after_an_edit_is_safe_before_what_sinks_must_be_brought_away_from_is() -> None:
    """Commit "An edited view: its sinks get the difference, at an epoch that the lineage names"."""
    case = edited()
    case.epochs(1)
    assert case.state.versions.present() == {"v": EDITED} and case.state.copies.former == {"log.rows": 0}
    case.state.handle(events.LocationsSeen({0: case.holding(0, 0)}))
    case.state.handle(events.LocationsSeen({0: case.holding(0, 1)}))
    assert case.state.copies.safe == 0, "the sink still needs the log before"
    case.state.handle(events.SinkAnswered(0, 1))
    case.state.handle(events.LocationsSeen({0: case.holding(0, 1)}))
    assert case.state.copies.safe == 1


def test_an_edited_view_is_delivered_from_the_logs_at_the_epoch_that_says_so() -> None:
    """tests/flow/test_editing.py: "the sinks of an edited view get the difference"."""
    case = edited()
    assert of_kind(CatchUp, case.epochs(1)) == CatchUp(0, 1)
    case.state.handle(events.SinkAnswered(0, 1))
    assert of_kind(Commit, case.epochs(1)) == Commit(0, 2)


def test_traces_that_nobody_has_any_more_are_removed_only_when_nobody_can_need_them() -> None:
    """Commit "sources: keep the logs of absent inputs before anything is removed"; tests/flow/test_editing.py."""
    case = edited()
    case.state.edits._retention = Retention(epochs=0)
    case.state.handle(events.InputsAbsent(frozenset({"gone.rows"}), {}))
    case.epochs(1)
    case.round(0, 1, **{"log.rows": 0})
    assert case.state.copies.safe == 1
    case.epochs(1)
    case.due()
    case.shipped(0)
    case.seen(0, case.holding(0, 2, **{"log.rows": 0}))
    assert case.state.copies.safe == 2 > case.state.versions.changed
    assert not has(ForgetTraces, case.claimed(0)), "the sink has not been brought away from it"
    case.ended(0)
    case.state.handle(events.SinkAnswered(0, 2))
    case.epochs(1)
    case.due()
    case.shipped(0)
    case.seen(0, case.holding(0, 3))
    kept = frozenset({"t", "gone.rows"})
    assert [each for each in case.claimed(0) if isinstance(each, ForgetTraces)] == [
        ForgetTraces(0, kept),
        ForgetTraces(-1, kept),
    ], "an input that is not declared now may be again"
    case.state.handle(events.TracesForgotten(0))
    case.ended(0)
    case.epochs(1)
    case.due()
    case.shipped(0)
    case.seen(0, case.holding(0, 4))
    assert of_kind(ForgetTraces, case.claimed(0)).location == -1, "a member could not be reached: it is tried again"


def test_a_log_that_a_sink_still_needs_is_not_compacted() -> None:
    """A former trace with many layers made every round fail after its claims were read (found with this test)."""
    case = edited()
    many = {layer(each, each): 10 for each in range(COMPACT_FROM)}
    case.epochs(COMPACT_FROM - 1)
    case.due()
    case.seen(0, Holding({}, -1, case.identities[0], (1, 0)))
    case.shipped(0)
    layers = {"t": {layer(0, COMPACT_FROM - 1): 10}, "log.rows": many}
    case.seen(0, Holding(layers, COMPACT_FROM - 1, case.identities[0], (1, 0)))
    assert not has(CompactCopies, case.claimed(0))


def test_a_log_that_an_edit_brings_back_stays_readable_as_a_sink_has_it() -> None:
    """Seed 40 of the branches in `tests/simulator/test_branches.py`: a view is edited and edited back before a sink has
    the first edit. Its log is live again, and was kept, collapsed and fetched by what the last epoch needs alone."""
    case = Case(
        sinks=[0], declared=VERSION, traces={VERSION.trace: None},
        settings=DurabilitySettings(min_replicas=1, retention=Retention(epochs=0)),
    )  # fmt: skip
    for version, epochs in ((VERSION, 1), (EDITED, 3)):
        case.state.edits._declared = {"v": version}
        case.epochs(epochs)
    case.state.edits._declared = {"v": VERSION}
    copies, history = case.state.copies, case.state.history
    case.state.handle(events.LocationsSeen({0: case.holding(0, 3, **{EDITED.trace: 3})}))
    assert copies.safe == history.last == 3
    assert case.state.edits.former_traces()[VERSION.trace].since == 0
    assert copies.former == {EDITED.trace: 3}, "the other is kept as a live trace is"
    assert copies.since(VERSION.trace, 5000) == 0 and copies.live_after == 0, "the sink has epoch 0"
    case.state.handle(events.SinkAnswered(0, 3))
    assert copies.since(VERSION.trace, 5000) == 3 and copies.live_after == 2


def test_layers_that_are_to_be_removed_are_not_merged() -> None:
    """`coordinator/copy_plan.py`: a merge must not read what the same round removes."""
    case = Case(traces={"t": 0})
    case.epochs(COMPACT_FROM + 2)
    last = COMPACT_FROM + 1
    case.due()
    case.seen(0, Holding({}, -1, case.identities[0], (1, 0)))
    case.shipped(0)
    many = {layer(each, each): 10 for each in range(last + 1)}
    case.seen(0, Holding({"t": {**many, layer(0, last - 1): 10}}, last, case.identities[0], (1, 0)))
    found = case.claimed(0)
    gone = set(of_kind(RemoveCopies, found).layers)
    merges: list[MergeCopies] = [one for each in found if isinstance(each, CompactCopies) for one in each.merges]
    assert gone and not gone & {("t", name) for one in merges for name in one.compact.names}


# -- folding ----------------------------------------------------------------------------------------------------------


def test_nothing_is_folded_that_a_sink_a_reader_or_another_driver_may_need() -> None:
    """Commit "lineage: fold what lies behind the safe point and retention into a base"."""
    settings = DurabilitySettings(retention=Retention(epochs=1), fold=2)
    case = Case(sinks=[-1], settings=settings)
    case.epochs(6)
    case.state.handle(events.SinkAnswered(0, 3))
    assert case.state.foldable(5000, 0) is None, "nothing is safe"
    case.state.handle(events.LocationsSeen({0: case.holding(0, 5)}))
    assert case.state.copies.safe == 5
    assert case.state.foldable(5000, 0) is None, "safe, and maybe another driver's by now"
    case.round(0, 5)
    assert case.state.foldable(5000, 0) == 3, "the sink has no more"
    case.state.handle(events.SinkAnswered(0, 5))
    assert case.state.foldable(5000, 0) == 4, "one epoch is retained"
    assert case.state.foldable(5000, 10_000_000) is None, "it is not worth a rewrite of so large a base"


def test_what_a_branch_took_since_its_root_is_not_folded() -> None:
    case = Case(settings=DurabilitySettings(retention=Retention(epochs=0), fold=1), root=2)
    case.epochs(9)
    case.round(0, 8)
    assert case.state.foldable(5000, 0) == 2


def test_a_fold_in_the_middle_of_a_round_leaves_what_the_round_needs() -> None:
    """Commit "growth: peaks of what is folded, and folding while files fail"."""
    case = Case()
    case.epochs(5)
    case.due()
    found = case.seen(0, case.holding(0, 2))
    record = case.state.history[3]
    case.state.handle(events.HistoryFolded(Folded(3, "", {}, record.clock, 0, record.term, end=record.digest)))
    assert case.state.history.first == 3 and case.state.last == 4
    for ship in of_kind(ShipLayers, found).ships:
        assert case.state.history.digest(ship.upto) is not None
    case.shipped(0)
    assert case.seen(0, case.holding(0, 4)) == [CheckClaim(0)] and case.state.copies.safe == 4
    assert MergeLineage(0) in case.claimed(0)


# -- members and partitions -------------------------------------------------------------------------------------------


def test_a_member_that_joins_waits_until_what_the_others_had_is_safe() -> None:
    """tests/simulator/test_lost_members.py: "a member that joins takes its share and nothing is computed again"."""
    case = Case(members=["m", "m", "n", "n"])
    case.epochs(2)
    assert case.state.handle(events.MembershipChanged("joined")) == [HurryRounds()]
    case.epochs(1)
    assert case.state.handle(events.MembershipChanged("joined")) == [HurryRounds()], "epoch 1 is awaited, not 2"
    case.state.handle(events.LocationsSeen({0: case.holding(0, 1)}))
    assert case.state.handle(events.MembershipChanged("joined")) == [Refresh(settle=True)]
    assert case.state.handle(events.MembershipChanged("")) == []


def test_a_member_that_joins_does_not_wait_for_ever() -> None:
    """`coordinator/flow_state.py`: storage may fail."""
    case = Case(members=["m", "m", "n", "n"])
    case.epochs(1)
    case.state.handle(events.MembershipChanged("joined"))
    case.epochs(16)
    assert case.state.handle(events.MembershipChanged("joined")) == [Refresh(settle=True)]


def test_a_loss_while_another_member_waits_to_join_is_made_up_for_at_once() -> None:
    """Commit "What a lost member kept is inherited by several others, and nothing else moves until all is safe"."""
    case = Case(members=["m", "m", "n", "n"])
    case.epochs(1)
    assert case.state.handle(events.MembershipChanged("joined")) == [HurryRounds()]
    assert case.state.handle(events.MembershipChanged("lost")) == [Refresh(settle=False)]
    assert case.ownership is not None
    case.ownership.seen(["m", "o"])
    assert case.ownership.owners[:2] == ("m", "m") and case.ownership.is_provisional
    case.epochs(1)
    assert case.state.handle(events.MembershipChanged("unsettled")) == [HurryRounds()], "a wait of its own"


def test_what_is_lost_is_inherited_by_several_also_beside_an_idle_one() -> None:
    """Commits "placement: what is lost is inherited by several, also beside an idle one", "tests: an idle member"."""
    case = Case(members=["m", "n", "o", "o"])
    assert case.ownership is not None
    case.ownership.seen(["m", "n", "idle"])
    owners = case.ownership.owners
    assert owners[:2] == ("m", "n"), "nothing else moves"
    assert "o" not in owners and len(set(owners[2:])) == 2


def test_a_member_that_comes_back_before_anybody_looked_loses_nothing() -> None:
    """Commit "Who looks which members are there is not cancelled with the epoch when another is lost"."""
    case = Case(members=["m", "m", "n", "n"])
    assert case.ownership is not None
    before = case.ownership.owners
    assert not case.ownership.seen(["m", "n"]) and case.ownership.owners == before


def test_a_partition_whose_task_ran_elsewhere_in_any_stage_is_kept_there() -> None:
    """CHANGELOG: "speculative copies of tasks take their state from the log"; tests/simulator/test_lost_members.py."""
    case = Case(members=["m", "m", "n", "n"])
    assert case.state.handle(events.TasksRan(((0, "m"), (2, "n")))) == []
    found = case.state.handle(events.TasksRan(((0, "n"), (0, "m"), (2, "n"))))
    assert found == [HandOver({0: "n"})], "the task of the first stage wrote its layers there"


def test_a_member_whose_partitions_were_all_handed_over_is_not_asked_any_more() -> None:
    """Commit "A round that meets a partition …; a straggler that keeps something": it may stand still."""
    case = Case(members=["m", "m", "n", "n"])
    assert case.ownership is not None
    case.ownership.hand_over({2: "m", 3: "m"})
    assert case.ownership.asked == {"m"} and case.ownership.owners == ("m",) * 4
    case.ownership.hand_over({2: "nobody"})
    assert case.ownership.owners == ("m",) * 4, "one that is not there gets nothing"


# -- going on without lost members ------------------------------------------------------------------------------------


def continuing() -> Case:
    case = Case(members=["m", "m", "n", "o"], continues=True, sinks=[-1])
    case.epochs(2)
    case.state.handle(events.SinkAnswered(0, 1))
    return case


def lose(case: Case, *left: str) -> list[Instruction]:
    """Members are lost, and the runner has looked who is there."""
    assert case.ownership is not None
    before = case.ownership.owners
    case.ownership.seen(left)
    return case.state.handle(events.MembersLost(before, case.ownership.owners, case.ownership.members))


def test_a_loss_in_the_middle_of_an_epoch_begins_a_branch_with_it() -> None:
    """tests/simulator/test_continued.py, of the same name."""
    case = continuing()
    exact = case.begin(7)
    assert lose(case, "m", "o") == [BeginBranch()]
    branch = case.state.branch
    assert branch is not None and case.state.mode is Mode.APPROXIMATE
    assert (branch.lost, branch.members, branch.since) == ({2}, {"n"}, 2)
    assert case.state.handle(events.EpochFailed(exact)) == [RemoveLayers(exact.digest)], "the exact one is undone"
    approximate = branch.epochs.begin(exact.offers, 1000, 8)
    assert approximate.epoch == exact.epoch and approximate.digest != exact.digest
    case.state.handle(events.BranchEpochRan(approximate))
    assert (case.state.last, case.state.epochs.last, case.state.history.last) == (2, 1, 1)


def test_what_is_lost_is_not_copied_and_no_round_is_asked_for_in_vain() -> None:
    """Commit "A flow may go on with what is left when members are lost with their layers, and be repaired later"."""
    case = continuing()
    lose(case, "m", "o")
    case.due()
    found = case.seen(0, Holding({}, -1, case.identities[0], (1, 0)))
    assert [ship.low for ship in of_kind(ShipLayers, found).ships] == [0, QUARTER, 3 * QUARTER]
    case.shipped(0)
    held = {layer(0, 1, low, high): 10 for low, high in (RANGES[0], RANGES[1], RANGES[3])}
    case.seen(0, Holding({"t": held}, 1, case.identities[0], (1, 0)))
    assert case.state.copies.safe == -1
    case.claimed(0)
    assert case.ended(0) == [], "the location lags, and another round would change nothing"


def test_another_loss_leaves_more_out_and_what_is_left_stays_where_its_branch_is() -> None:
    """tests/simulator/test_continued.py: "another loss leaves more out"."""
    case = continuing()
    lose(case, "m", "o")
    assert case.state.branch is not None
    assert case.ownership is not None
    case.ownership.hand_over({3: "m"})
    case.ownership.seen(["m", "o", "p"])
    found = lose(case, "m", "o", "p")
    assert found == [HandOver({3: "o"}, recover=False)] or case.ownership.owners[3] == "o"
    lose(case, "m", "p")
    assert case.state.branch.lost == {2, 3} and case.state.branch.left == {0, 1}
    lose(case, "m", "n", "o", "p")
    assert case.state.branch.lost == {2, 3}, "one that comes back has not seen the epochs since"


def test_when_all_or_none_are_lost_the_flow_goes_on_exactly() -> None:
    """tests/simulator/test_continued.py: "when nothing is left the flow repairs itself"."""
    case = continuing()
    assert lose(case, "p") == [] and case.state.branch is None
    case = continuing()
    assert lose(case, "m", "n", "o") == [] and case.state.branch is None
    case = Case(members=["m", "n"], continues=True)
    assert lose(case, "m") == [], "before the first epoch nothing can be lost"
    case = Case(members=["m", "n"])
    case.epochs(1)
    assert lose(case, "m") == [], "the policy is another"


def test_a_branch_that_those_that_are_left_cannot_begin_is_none() -> None:
    """`runtime/continuing.py`: they cannot be reached either."""
    case = continuing()
    lose(case, "m", "o")
    case.state.handle(events.BranchImpossible())
    assert case.state.branch is None and case.state.mode is Mode.EXACT
    assert case.state.copies.lost == frozenset() and case.state.may_branch


def test_a_damaged_layer_of_the_branch_is_left_out_with_its_partition() -> None:
    """tests/simulator/test_continued.py: "nothing is lost … when anything else goes wrong"."""
    case = continuing()
    lose(case, "m", "o")
    assert case.state.branch is not None
    failed = case.state.branch.epochs.begin({}, 1000, 8)
    case.state.handle(events.BranchEpochFailed(failed))
    case.state.handle(events.RangeDamaged(0, QUARTER))
    assert case.state.branch.left == {1, 3}
    again = case.state.branch.epochs.begin({}, 1000, 9)
    assert again.epoch == failed.epoch and again.digest != failed.digest, "the epoch at hand begins again, as another"
    case.state.handle(events.RangeDamaged(0, 0))
    assert case.state.branch.left == {1, 3}, "an error that does not say where"
    case.state.handle(events.RangeDamaged(0, ALL))
    assert not case.state.branch.left


def test_a_loss_in_the_middle_of_a_repair_begins_no_other_branch() -> None:
    """`runtime/continuing.py`: "A loss in the meantime is made up for at once"."""
    case = continuing()
    lose(case, "m", "o")
    case.state.handle(events.RepairBegan())
    assert not case.state.may_branch
    assert case.state.copies.lost == {0, 1, 2, 3}, "what is copied now may be elsewhere than it was"


def test_a_repair_runs_the_epochs_again_without_telling_the_sources_twice() -> None:
    """tests/simulator/test_continued.py: "a repair brings back what was lost and runs the epochs again"."""
    case = continuing()
    lose(case, "m", "o")
    branch = case.state.branch
    assert branch is not None
    approximate = branch.epochs.begin({"orders": 2}, 1000, 8)
    case.state.handle(events.BranchEpochRan(approximate))
    case.state.handle(events.RepairBegan())
    case.state.handle(events.LayersRecovered())
    assert case.state.copies.lost == frozenset()
    (taken,) = branch.history.since(case.state.history.last)
    assert taken == approximate
    exact = case.state.begin(taken.offers, taken.clock, 9)
    assert case.count(exact) == [RequestCopies(), Commit(0, 2)]
    case.state.handle(events.RepairEnded(exact=True))
    assert (case.state.mode, case.state.last, case.state.branch) == (Mode.EXACT, 2, None)
    assert case.state.handle(events.MembershipChanged("")) == [HurryRounds()], "members are where the repair put them"


def test_a_repair_that_fails_goes_on_where_it_was_and_its_branch_can_be_read() -> None:
    """tests/simulator/test_continued.py: "a repair that fails goes on where it was"."""
    case = continuing()
    lose(case, "m", "o")
    branch = case.state.branch
    assert branch is not None and case.ownership is not None
    for seed in (8, 9):
        case.state.handle(events.BranchEpochRan(branch.epochs.begin({"orders": seed}, 1000, seed)))
    case.state.handle(events.RepairBegan())
    case.ownership.seen(["m", "o"], settle=True)
    case.ownership.hand_over({0: "o"})
    case.state.handle(events.LayersRecovered())
    case.count(case.state.begin({"orders": 8}, 1000, 10))
    case.state.handle(events.RepairEnded(exact=False))
    assert case.state.mode is Mode.APPROXIMATE and case.state.last == 3
    assert case.state.copies.lost == {0, 1, 2, 3}, "nothing is where copies would be made from"
    owners = case.ownership.owners
    found = case.state.handle(events.MembersLost(owners, owners, case.ownership.members))
    assert of_kind(HandOver, found).moves[0] == "m", "what is left is read where its branch is"
    case.state.handle(events.RepairBegan())
    assert [each.epoch for each in branch.history.since(case.state.history.last)] == [3], "epoch 2 is done"


def test_an_epoch_that_gets_a_name_while_others_complete_is_not_compacted_or_folded() -> None:
    """Epochs complete between the call and the moment at which the state is told: the name is of the last of them, and
    from that moment on nothing passes it, however many follow and are safe."""
    settings = DurabilitySettings(retention=Retention(epochs=0), fold=1)
    case = Case(traces={"t": None, "u": 8}, settings=settings)
    case.state.handle(events.SnapshotTaken("none"))
    assert case.state.copies.snapshots == {}, "there is no epoch yet"
    case.epochs(3)
    case.state.handle(events.SnapshotTaken("cut"))
    assert case.state.copies.snapshots == {"cut": 2}
    case.epochs(20)
    case.round(0, 22)
    for trace in ("t", "u"):
        assert case.state.copies.since(trace, 5000) == 2
    assert case.state.foldable(5000, 0) == 2
    case.state.handle(events.SnapshotRemoved("cut"))
    assert [case.state.copies.since(trace, 5000) for trace in ("t", "u")] == [22, 22]
    assert case.state.foldable(5000, 0) == 21


def test_input_that_came_after_the_root_of_a_branch_is_kept_however_safe_it_is_until_the_branch_is_removed() -> None:
    """A round that clears all epochs ends after the branch was made: what may be fed to the branch is not released."""
    settings = DurabilitySettings(retention=Retention(epochs=0), fold=1)
    case = Case(traces={"t": None, "u": 8}, settings=settings, inputs=["t"])
    case.epochs(3)
    case.state.handle(events.BranchMade("what-if", 1))
    case.epochs(20)
    case.round(0, 22)
    assert case.state.copies.cleared == 22 and case.state.release().upto == 1
    assert [case.state.copies.since(trace, 5000) for trace in ("t", "u")] == [1, 22], "the state is the branch's own"
    assert case.state.foldable(5000, 0) == 1
    case.state.handle(events.BranchRemoved("what-if"))
    assert case.state.release().upto == 22 and case.state.foldable(5000, 0) == 21
    assert case.state.copies.since("t", 5000) == 22


def test_every_event_and_every_instruction_is_part_of_a_race() -> None:
    """So that one that is added later gets one, too."""
    own = Path(__file__)
    beside = ("flow_states.py", "test_strategy_races.py", "test_draining.py")
    text = own.read_text() + "".join((own.parent / each).read_text() for each in beside)
    for module in (events, instructions):
        for name, kind in vars(module).items():
            if isinstance(kind, type) and kind.__module__ == module.__name__:
                assert name in text, f"{name} is in no race"
