"""Covers, checked point by point: hashes are cut into 8 cells, and every (cell, epoch) is looked at on its own."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import EpochUnavailable, LogDamaged
from holdfast.trace.cover import Chain, Piece, cover, covered, garbage, span
from holdfast.trace.name import ALL, LayerName

CELLS = 8
CELL = ALL // CELLS
EPOCHS = 10
DIGESTS = tuple(f"{epoch:016x}" for epoch in range(EPOCHS))
CHAIN = Chain(-1, DIGESTS)


def layer(
    low: int, high: int, first: int, last: int, *, since: int = -1, digest: str | None = None, checksum: str = ""
) -> LayerName:
    """A layer of the cells [low, high)."""
    return LayerName(low * CELL, high * CELL, first, last, digest or f"{last:016x}", since, checksum.rjust(16, "0"))


def random_layers(seed: int) -> list[LayerName]:
    """What epochs, changing numbers of partitions, merges, compactions, losses and stale writers may leave behind."""
    rng = Random(seed)
    names: list[LayerName] = []
    ending = rng.randrange(EPOCHS)
    for epoch in range(ending + 1):
        parts = rng.choice((1, 2, 4, 8))
        width = CELLS // parts
        names += [layer(i * width, (i + 1) * width, epoch, epoch) for i in range(parts)]
    for _ in range(rng.randrange(8)):
        parts = rng.choice((1, 2, 4))
        at = rng.randrange(parts) * (CELLS // parts)
        first = rng.randrange(ending + 1)
        last = rng.randrange(first, ending + 1)
        since = rng.choice((-1, -1, rng.randrange(first, last + 1)))
        stale = f"{rng.randrange(4):015x}f" if rng.random() < 0.2 else None
        names.append(layer(at, at + CELLS // parts, first, last, since=since, digest=stale))
    for _ in range(rng.choice((0, 0, 1, 3, 9))):
        names.pop(rng.randrange(len(names)))
        if not names:
            break
    rng.shuffle(names)
    return names


LAYERS = st.integers(0, 1 << 32).map(random_layers)


def accepted(names: list[LayerName], chain: Chain = CHAIN) -> list[LayerName]:
    return [
        n
        for n in names
        if n.last <= chain.base or (n.last <= chain.end and n.digest == chain.digests[n.last - chain.base - 1])
    ]


def reachable(names: list[LayerName], cell: int, after: int = -1) -> set[int]:
    """Brute force: epochs e such that (after, e] of one cell can be tiled by legal cuts of layers."""
    here = [n for n in accepted(names) if n.low <= cell * CELL and (cell + 1) * CELL <= n.high]
    found = {after}
    for epoch in range(after, EPOCHS):
        if epoch not in found:
            continue
        for n in here:
            for stop in range(epoch + 1, EPOCHS):
                if legal(Piece(n, 0, 0, epoch, stop)):
                    found.add(stop)
    return found


def legal(piece: Piece) -> bool:
    n = piece.name
    return (
        (piece.after == n.first - 1 or n.floor <= piece.after)
        and n.first - 1 <= piece.after < piece.upto <= n.last
        and piece.upto >= n.floor
    )


@given(names=LAYERS, data=st.data())
@settings(max_examples=150, deadline=None)
def test_a_cover_holds_every_point_once_or_there_is_none(names: list[LayerName], data: st.DataObject) -> None:
    low = data.draw(st.integers(0, CELLS - 1))
    high = data.draw(st.integers(low + 1, CELLS))
    as_of = data.draw(st.integers(-1, EPOCHS - 1))
    possible = [reachable(names, cell) for cell in range(low, high)]
    common = set.intersection(*possible)
    assert covered(names, low * CELL, high * CELL, CHAIN) == max(common)
    if as_of not in common:
        with pytest.raises((EpochUnavailable, LogDamaged)) as error:
            cover(names, low * CELL, high * CELL, as_of, CHAIN)
        later = [epoch for epoch in common if epoch > as_of]
        assert isinstance(error.value, EpochUnavailable) == bool(later)
        if later:
            assert error.value.fields["earliest"] == min(later)
        else:
            fields = error.value.fields
            cell, first = int(str(fields["low"])) // CELL, int(str(fields["first"]))
            assert as_of not in possible[cell - low] and first - 1 in possible[cell - low]
        return
    pieces = cover(names, low * CELL, high * CELL, as_of, CHAIN)
    seen: dict[tuple[int, int], int] = {}
    for piece in pieces:
        assert piece.name in accepted(names) and legal(piece)
        assert piece.name.low <= piece.low < piece.high <= piece.name.high
        for cell in range(piece.low // CELL, piece.high // CELL):
            for epoch in range(piece.after + 1, piece.upto + 1):
                seen[cell, epoch] = seen.get((cell, epoch), 0) + 1
    assert seen == {(cell, epoch): 1 for cell in range(low, high) for epoch in range(as_of + 1)}
    assert pieces == cover(sorted(names), low * CELL, high * CELL, as_of, CHAIN)


@given(names=LAYERS, live_after=st.integers(-1, EPOCHS + 2))
@settings(max_examples=80, deadline=None)
def test_garbage_is_never_missed(names: list[LayerName], live_after: int) -> None:
    gone = garbage(names, CHAIN, live_after)
    kept = [name for name in names if name not in gone]
    for cell in range(CELLS):
        before, after = reachable(names, cell), reachable(kept, cell)
        assert {e for e in before if e >= live_after} == {e for e in after if e >= live_after}
        assert max(before) == max(after)
    assert set(names) - set(accepted(names)) <= set(gone)


@given(names=LAYERS, live_after=st.integers(-1, EPOCHS + 2))
@settings(max_examples=50, deadline=None)
def test_after_collection_there_is_no_more_garbage(names: list[LayerName], live_after: int) -> None:
    gone = set(garbage(names, CHAIN, live_after))
    assert garbage([name for name in names if name not in gone], CHAIN, live_after) == []


@given(names=LAYERS, data=st.data())
@settings(max_examples=80, deadline=None)
def test_exact_covers_tell_all_epochs_apart(names: list[LayerName], data: st.DataObject) -> None:
    after = data.draw(st.integers(-1, EPOCHS - 2))
    upto = data.draw(st.integers(after + 1, EPOCHS - 1))
    sharp = [n for n in names if n.floor == n.first or n.floor <= after]
    if all(upto in reachable(sharp, cell, after) for cell in range(CELLS)):
        pieces = cover(names, 0, ALL, upto, CHAIN, after=after, exact=True)
        assert all(p.name.floor == p.name.first or p.name.floor <= after for p in pieces)
        assert min(p.after for p in pieces) == after
    else:
        with pytest.raises((EpochUnavailable, LogDamaged)):
            cover(names, 0, ALL, upto, CHAIN, after=after, exact=True)


def test_few_large_layers_are_preferred() -> None:
    small = [layer(0, 8, epoch, epoch) for epoch in range(8)]
    merged = [layer(0, 8, 0, 3), layer(0, 8, 4, 5), layer(0, 8, 4, 7)]
    pieces = cover(small + merged, 0, ALL, 7, CHAIN)
    assert [piece.name for piece in pieces] == [merged[0], merged[2]]


def test_a_layer_is_cut_at_the_epoch_read() -> None:
    merged = layer(0, 8, 0, 7)
    assert cover([merged], 0, ALL, 5, CHAIN) == [Piece(merged, 0, ALL, -1, 5)]


def test_a_partition_is_a_slice_of_layers_of_any_partitioning() -> None:
    wide, left, right = layer(0, 8, 0, 4), layer(0, 4, 5, 5), layer(4, 8, 5, 5)
    pieces = cover([wide, left, right], 2 * CELL, 6 * CELL, 5, CHAIN)
    assert pieces == [
        Piece(wide, 2 * CELL, 6 * CELL, -1, 4),
        Piece(left, 2 * CELL, 4 * CELL, 4, 5),
        Piece(right, 4 * CELL, 6 * CELL, 4, 5),
    ]


def test_layers_of_another_history_are_never_read() -> None:
    stale, good = layer(0, 8, 1, 1, digest="f" * 16), layer(0, 8, 1, 1)
    base = layer(0, 8, 0, 0)
    assert [p.name for p in cover([stale, good, base], 0, ALL, 1, CHAIN)] == [base, good]
    with pytest.raises(LogDamaged, match="epochs 1 to 1"):
        cover([stale, base], 0, ALL, 1, CHAIN)
    # Up to the base the digests were checked before, and are not known any more.
    assert cover([stale, base], 0, ALL, 1, Chain(1, ()))


def test_a_compacted_epoch_says_which_one_can_be_read() -> None:
    names = [layer(0, 8, 0, 6, since=4), layer(0, 8, 7, 7)]
    with pytest.raises(EpochUnavailable, match=r"epoch 3 .* epoch 4") as error:
        cover(names, 0, ALL, 3, CHAIN)
    assert error.value.fields["earliest"] == 4
    assert cover(names, 0, ALL, 4, CHAIN) and cover(names, 0, ALL, 7, CHAIN)


def test_an_epoch_to_come_is_not_called_damage() -> None:
    with pytest.raises(EpochUnavailable, match="not there yet"):
        cover([layer(0, 8, 0, 0)], 0, ALL, EPOCHS + 3, CHAIN)


def test_a_gap_is_named_by_range_and_epochs() -> None:
    names = [layer(0, 8, 0, 2), layer(0, 4, 3, 5), layer(4, 8, 5, 5)]
    with pytest.raises(LogDamaged, match="epochs 3 to 4") as error:
        cover(names, 0, ALL, 5, CHAIN)
    assert (error.value.fields["low"], error.value.fields["high"]) == (4 * CELL, ALL)
    assert covered(names, 0, ALL, CHAIN) == 2 and covered(names, 0, 4 * CELL, CHAIN) == 5


def test_layers_beyond_the_chain_are_neither_read_nor_garbage() -> None:
    """An epoch that runs right now has written them; the chain does not know it yet."""
    chain = Chain(-1, DIGESTS[:2])
    names = [layer(0, 8, 0, 0), layer(0, 8, 1, 1), layer(0, 8, 2, 2)]
    assert covered(names, 0, ALL, chain) == 1
    assert garbage(names, chain, 1) == []


def test_layers_beyond_a_gap_are_kept() -> None:
    names = [layer(0, 8, 0, 0), layer(0, 8, 2, 2), layer(0, 8, 3, 3)]
    assert garbage(names, CHAIN, 0) == []


def test_what_a_merge_replaced_is_garbage_once_nobody_reads_before_it() -> None:
    small = [layer(0, 8, epoch, epoch) for epoch in range(4)]
    merged = layer(0, 8, 0, 3, since=2)
    assert garbage([*small, merged], CHAIN, 2) == sorted(small)
    assert garbage([*small, merged], CHAIN, 1) == sorted(small[2:])
    halves = [layer(0, 4, 0, 3, since=2), layer(4, 8, 0, 3, since=2)]
    assert garbage([*small, halves[0]], CHAIN, 2) == []
    assert garbage([*small, *halves], CHAIN, 2) == sorted(small)


def test_span_is_what_layers_hold_in_all_of_the_range() -> None:
    assert span([layer(0, 8, 2, 3), layer(0, 8, 4, 6)], 0, ALL, CHAIN) == (1, 6)
    assert span([layer(0, 4, 0, 6), layer(4, 8, 2, 5)], 0, ALL, CHAIN) == (1, 5)
    with pytest.raises(LogDamaged):
        span([layer(0, 4, 0, 1), layer(4, 8, 2, 3)], 0, ALL, CHAIN)


def test_nothing_is_needed_before_the_first_epoch() -> None:
    assert cover([], 0, ALL, -1, CHAIN) == [] and covered([], 0, ALL, CHAIN) == -1
    with pytest.raises(LogDamaged):
        cover([], 0, ALL, 0, CHAIN)
