"""A history with a base: what is left of epochs that were folded, and how it is found again."""

from __future__ import annotations

import base64
import errno
import json
import os
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.connectors.file_access import File
from holdfast.connectors.file_offer import Offered, files_of, fold_files, offer_of
from holdfast.connectors.input import Input
from holdfast.connectors.keyed_source import KeyedSource
from holdfast.connectors.rate import rate
from holdfast.connectors.source import Offer, Source
from holdfast.coordinator.folded import Folded
from holdfast.coordinator.history import History
from holdfast.coordinator.lineage import GENESIS, Lineage, from_lines, to_lines
from holdfast.coordinator.retention import Retention
from holdfast.coordinator.rewinds import Rewinds
from holdfast.coordinator.true_history import Seen, choose, extend
from holdfast.coordinator.view_versions import Span, ViewVersion, ViewVersions
from holdfast.errors import EpochUnavailable, LogDamaged, LogError, SinkError
from holdfast.log.replica import Replica
from holdfast.log.stash import LineageLog, read_lineage
from holdfast.plan.nodes import Field
from holdfast.runtime.declaration import ConnectorProgress
from holdfast.runtime.intake import Intake
from holdfast.testing.memory import MemoryLocation


def chain(length: int, term: int = 1, after: list[Lineage] | None = None, seed: int = 0) -> list[Lineage]:
    history = list(after or [])
    for _ in range(length):
        parent = history[-1].digest if history else GENESIS
        epoch = len(history)
        history.append(Lineage(epoch, parent, {"s": {"first": epoch, "changes": 1}}, 10 * epoch, seed + epoch, term))
    return history


def folded(history: list[Lineage], upto: int, ends: tuple[int, ...] = ()) -> Folded:
    record = history[upto]
    taken = {"s": ((upto, {"first": 0, "changes": upto + 1}),)}
    return Folded(
        upto, "", {}, record.clock, 0, record.term, end=record.digest, taken=taken,
        ends={end: history[end].digest for end in ends},
    )  # fmt: skip


def test_a_base_reads_back_and_shows_damage() -> None:
    base = folded(chain(9), 5, ends=(1, 3))
    (again,) = from_lines(to_lines([base]))
    assert again == base and isinstance(again, Folded) and again.digest == base.digest
    said = json.loads(base.to_json())
    for key, wrong in (("base", 4), ("clock", 1), ("taken", {}), ("ends", {})):
        with pytest.raises(ValueError, match="checksum"):
            Lineage.from_json(json.dumps({**said, key: wrong}, separators=(",", ":")))
    del said["clock"]
    with pytest.raises(ValueError):
        Lineage.from_json(json.dumps(said))


def test_epochs_are_numbers_whatever_was_folded() -> None:
    whole = chain(10)
    history = History(whole)
    history.fold(folded(whole, 5, ends=(2,)))
    assert len(history) == 10 and history.last == 9 and history.first == 5
    assert [history[epoch] for epoch in (6, 9, -1)] == [whole[6], whole[9], whole[9]]
    assert history[5].clock == whole[5].clock and history[5].digest == whole[5].digest
    assert history.since(7) == whole[8:] and history[6:8] == whole[6:8]
    assert history.since(-1) == [history.base, *whole[6:]]
    assert [history.digest(epoch) for epoch in (1, 2, 5, 7, 10)] == [
        None, whole[2].digest, whole[5].digest, whole[7].digest, None,
    ]  # fmt: skip
    with pytest.raises(EpochUnavailable, match="was folded"):
        history[3]
    with pytest.raises(IndexError):
        history[10]
    copy = history.copy()
    copy.append(chain(1, after=whole)[-1])
    assert len(history) == 10 and len(copy) == 11


def test_a_base_and_what_follows_it_are_the_history() -> None:
    whole = chain(10)
    early, late = folded(whole, 3), folded(whole, 6)
    assert choose([late, *whole[7:]]) == [late, *whole[7:]]
    assert choose([early, *whole[4:], late]) == [late, *whole[7:]], "the later of two on one way"
    assert choose([*whole, early]) == [early, *whole[4:]]
    assert choose([early, *whole[4:6], late]) == [late], "what is not known to follow does not count"
    assert extend(choose([late]), whole[7:], 8) == [late, *whole[7:9]]


def test_of_bases_of_two_histories_that_of_the_higher_term_counts() -> None:
    common = chain(4)
    lost, true = chain(20, 1, common, seed=70), chain(3, 2, common)
    assert choose([folded(lost, 15), *lost[16:], folded(true, 2), *true[3:]]).last == 6
    assert choose([folded(lost, 15), *lost[16:], *true]) == true


def test_what_a_sink_has_seen_decides_between_bases_too() -> None:
    common = chain(4)
    seen, other = chain(3, 1, common, seed=70), chain(3, 2, common)
    one = Seen("sink of view 'v'", 6, seen[6].digest)
    assert choose([folded(seen, 2), *seen[3:], folded(other, 3), *other[4:]], [one])[-1] == seen[6]
    with pytest.raises(SinkError, match="another history"):
        choose([folded(other, 3), *other[4:]], [one])
    assert choose([folded(other, 6)], [replace(one, epoch=2, digest="0" * 16)]).last == 6, "it cannot be told any more"


def test_retention_by_time_counts_from_the_base_on() -> None:
    whole = chain(10)
    history = History([folded(whole, 4), *whole[5:]])
    assert Retention(seconds=30e-6).floor(history, 90) == 6
    assert Retention(seconds=9.0).floor(history, 90) == 3, "nothing before it can be told apart any more"


def test_the_stash_is_written_anew_with_the_base_and_goes_on(tmp_path: Path) -> None:
    whole = chain(30)
    log = LineageLog(tmp_path / "log.jsonl", whole[:20])
    before = log.path.stat().st_size
    log.fold(folded(whole, 15))
    assert log.path.stat().st_size < before
    log.append(whole[20], log.history.append)
    log.close()
    assert read_lineage(log.path) == [folded(whole, 15), *whole[16:21]]
    lines = log.path.read_bytes().splitlines(keepends=True)
    log.path.write_bytes(lines[0] + b"".join(lines[2:]))
    with pytest.raises(LogDamaged, match="epoch 17 does not follow epoch 15"):
        read_lineage(log.path)


def test_a_stash_whose_new_file_cannot_be_opened_loses_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = chain(30)
    log = LineageLog(tmp_path / "log.jsonl", whole[:20])
    with monkeypatch.context() as failing:
        opened = os.open

        def refuse(path: str, flags: int, *more: int, **others: int) -> int:
            if os.fspath(path) == str(log.path) and flags & os.O_APPEND:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return opened(path, flags, *more, **others)

        failing.setattr(os, "open", refuse)
        with pytest.raises(LogError, match="Too many open files"):
            log.fold(folded(whole, 15))
    log.append(whole[20], log.history.append)
    log.close()
    assert read_lineage(log.path) == whole[:21]


def test_segments_behind_the_base_are_replaced_by_it() -> None:
    whole, replica = chain(40), Replica(MemoryLocation())
    for first in range(0, 30, 6):
        replica.write_lineage(whole[first : first + 6])
    history = History(whole[:30])
    assert replica.holding(history, ()).lineage == 29
    history.fold(folded(whole, 20, ends=(5, 11, 17)))
    assert replica.holding(history, ()).lineage == 29, "names tell it as before"
    replica.merge_lineage(history)
    assert [(each.first, each.last) for each in replica.segments()] == [(0, 29)]
    (segment,) = replica.segments()
    assert replica.read_segment(segment) == [history.base, *whole[21:30]]
    replica.write_lineage(whole[30:36])
    for lineage in whole[30:36]:
        history.append(lineage)
    assert replica.holding(history, ()).lineage == 35
    empty = Replica(MemoryLocation())
    empty.write_lineage(history.since(empty.holding(history, ()).lineage))
    assert empty.holding(history, ()).lineage == 35, "a location that had nothing has all of it"


def test_forms_that_still_matter_are_in_the_base() -> None:
    a, b = ViewVersion("a-log", ("bigint",), (0,)), ViewVersion("b-log", ("bigint",), ())
    views = {0: {"v": a, "w": a}, 4: {"v": b}, 8: {"v": a}}
    whole: list[Lineage] = []
    for epoch in range(10):
        said = {name: form.to_json() for name, form in views[epoch].items()} if epoch in views else None
        whole.append(Lineage(epoch, whole[-1].digest if whole else GENESIS, {}, 0, epoch, views=said))
    forms = ViewVersions(whole)
    base = replace(folded(whole, 5), forms=json.loads(json.dumps(forms.folded(5))))
    again = ViewVersions(History([base, *whole[6:]]))
    assert again.of("v") == [Span(4, 7, b), Span(8, None, a)] and again.of("w") == [Span(0, 3, a)]
    assert again.present() == forms.present() and again.changed == 8
    assert ViewVersions(History([base])).present() == {"v": b} and ViewVersions(History([base])).changed == 4


class Heard(Source):
    """Remembers what it was told; it folds nothing."""

    fields = (Field("a", "bigint"),)

    def __init__(self) -> None:
        self.told: list[Offer] = []
        self.released: list[Offer] = []

    def poll(self) -> Offer | None:
        return None

    def advance(self, offer: Offer) -> None:
        self.told.append(offer)

    def release(self, offer: Offer) -> None:
        self.released.append(offer)


def test_a_source_that_cannot_fold_is_told_every_offer_once() -> None:
    whole, source, told = chain(8), Heard(), ConnectorProgress()
    intake = Intake({"s": source}, told, whole)
    taken, _ = intake.folded(5, Rewinds())
    assert taken["s"] == tuple((epoch, whole[epoch].offers["s"]) for epoch in range(6))
    history = History([replace(folded(whole, 5), taken=taken), *whole[6:]])
    first = Intake({"s": source}, told, whole[:4])
    first.catch_up()
    second = Intake({"s": source}, told, history)
    second.catch_up()
    assert source.told == [each.offers["s"] for each in whole]
    second.release(6)
    second.release(7)
    assert source.released == source.told


def test_inputs_fold_to_one_offer_and_go_on_counting() -> None:
    source, whole = Input("s", (Field("a", "bigint"),)), chain(8)
    intake = Intake({"s": source}, ConnectorProgress(), whole)
    base = replace(folded(whole, 5), taken=intake.folded(5, Rewinds())[0])
    assert base.taken == {"s": ((5, {"first": 0, "changes": 6}),)}
    intake.take(base)
    assert [epoch for epoch, _ in intake.taken["s"]] == [5, 6, 7]
    Intake({"s": source}, ConnectorProgress(), History([base, *whole[6:]])).catch_up()
    source.insert([(1,)])
    assert source.poll() == {"first": 8, "changes": 1}


def test_rates_fold_to_a_range_with_the_number_of_epochs() -> None:
    source = rate(10, epochs=6)
    offers = []
    for _ in range(4):
        offer = source.poll()
        assert offer is not None
        offers.append(offer)
        source.advance(offer)
    (whole,) = source.fold(source.fold(offers[:2]) + offers[2:])
    assert (whole["from"], whole["to"], whole["epochs"]) == (0, 40, 4)
    again = rate(10, epochs=6)
    again.advance(offers[0])
    again.advance(whole)
    polls = []
    while (offer := again.poll()) is not None:
        polls.append(offer["from"])
        again.advance(offer)
    assert polls == [40, 50]


class Ranges(Heard):
    """A source of ones own, whose rows come in no order inside an offer."""

    fields = (Field("id", "bigint"), Field("at", "bigint"))

    def fold(self, offers: Sequence[Offer]) -> list[Offer]:
        return [{"first": offers[0]["first"], "after": offers[-1]["after"]}]


@pytest.mark.parametrize(
    ("in_order", "order_by", "left"), [(False, None, 3), (True, None, 1), (False, "at", 1)], ids=str
)
def test_offers_that_alone_say_which_row_of_a_key_is_later_are_not_folded(
    in_order: bool, order_by: str | None, left: int
) -> None:
    inner = Ranges()
    inner.in_order = in_order
    source = KeyedSource("s", inner, "id", order_by, None)
    offers: list[Offer] = [{"at": at, "of": {"first": at, "after": at + 1}} for at in range(3)]
    assert len(source.fold(offers)) == left


def test_files_fold_to_one_list_per_way_of_reading_them() -> None:
    one = {"under": "/d", "files": [["a", 1, 10, "00"]], "skipped": [["/d/x", "bad", 3, 4]]}
    two = {"under": "/d/e", "files": [["b", 2, 20, "01"]]}
    other = {"under": "/d", "files": [["c", 2, 30, "02"]], "options": {"timeZone": "UTC"}}
    assert fold_files([one, two, other]) == [
        {"under": "/d", "files": [["a", 1, 10, "00"], ["e/b", 2, 20, "01"]], "skipped": [["/d/x", "bad", 3, 4]]},
        other,
    ]


def _offered(names: Iterable[str], mark: bytes) -> list[Offered]:
    return [Offered(File(f"/d/{name}", 1, place), mark) for place, name in enumerate(names)]


def test_files_whose_marks_are_of_different_identities_keep_their_marks_when_they_are_folded() -> None:
    # A source that was declared with identity="path", and later with "content"; and one of before there were marks.
    some = [
        _offered((f"{kind}{n}" for n in range(6)), mark)
        for kind, mark in (("a", b"1234"), ("b", b"x" * 16), ("c", b""))
    ]
    folded = fold_files([offer_of(each[:3]) for each in some] + [offer_of(each[3:]) for each in some])
    assert [each for offer in folded for each in files_of(offer)] == [
        file for half in (slice(3), slice(3, 6)) for each in some for file in each[half]
    ]
    together = fold_files([offer_of(each) for one in some for each in (one[:3], one[3:])])
    assert [files_of(offer) for offer in together] == some


def test_marks_that_were_mixed_up_by_folding_count_as_none() -> None:
    names = [f"{n}" for n in range(10)]
    packed = base64.b85encode(zlib.compress(json.dumps([names, [1] * 10, [1] * 10]).encode())).decode()
    mixed = {"under": "/d", "packed": packed, "marks": base64.b85encode(b"1234" * 5 + b"x" * 16 * 5).decode()}
    assert {each.mark for each in files_of(mixed)} == {b""}


def test_folding_leaves_offers_of_many_files_as_they_are() -> None:
    full = offer_of(_offered((f"{n:09d}" for n in range(5_000)), b"1234"))
    tail = [offer_of(_offered([f"later{n}"], b"1234")) for n in range(20)]
    first, last = fold_files([full, *tail])
    assert first is full, "what is full is not even looked at: a fold costs what is new"
    assert [each.file.path for each in files_of(last)] == [f"/d/later{n}" for n in range(20)]
    old = {key: said for key, said in full.items() if key != "count"}  # of before offers said how many they are
    assert fold_files([old, *tail]) == [old, last]
