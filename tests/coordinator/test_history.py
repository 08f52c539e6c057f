"""Which history is the true one: forks, terms, and what sinks have seen."""

from __future__ import annotations

import pytest

from holdfast.coordinator.history import History
from holdfast.coordinator.lineage import GENESIS, Lineage, from_lines, to_lines
from holdfast.coordinator.true_history import Seen, choose, extend
from holdfast.errors import LogDamaged, SinkError


def chain(length: int, term: int = 1, after: list[Lineage] | None = None, seed: int = 0) -> list[Lineage]:
    """Lineages that follow ``after``."""
    history = list(after or [])
    for _ in range(length):
        parent = history[-1].digest if history else GENESIS
        history.append(Lineage(len(history), parent, {"s": {"n": len(history)}}, 5, seed + len(history), term))
    return history


def seen(lineage: Lineage, who: str = "sink of view 'top'") -> Seen:
    return Seen(who, lineage.epoch, lineage.digest)


def test_records_in_any_order_from_many_places_give_the_history() -> None:
    history = chain(5)
    assert choose([*reversed(history), *history[1:3]]) == history


def test_a_missing_record_ends_the_history() -> None:
    history = chain(5)
    assert choose([*history[:2], *history[3:]]) == history[:2]


def test_of_two_branches_the_higher_term_is_true() -> None:
    common = chain(2)
    stale, new = chain(4, 1, common, seed=50), chain(1, 2, common)
    assert choose([*stale, *new]) == new


def test_of_two_branches_of_a_term_the_longer_is_true() -> None:
    common = chain(2)
    short, long = chain(1, 2, common, seed=50), chain(2, 2, common)
    assert choose([*short, *long]) == long


def test_what_a_sink_has_seen_counts_before_terms_and_length() -> None:
    common = chain(2)
    old, new = chain(1, 1, common), chain(3, 2, common)
    assert choose([*old, *new], [seen(old[-1])]) == old


def test_sinks_that_have_seen_different_branches_are_an_error_that_names_them() -> None:
    common = chain(2)
    old, new = chain(1, 1, common), chain(1, 2, common)
    with pytest.raises(
        SinkError, match="sink of view 'a' and sink of view 'b' have seen different histories"
    ) as caught:
        choose([*old, *new], [seen(old[-1], "sink of view 'a'"), seen(new[-1], "sink of view 'b'")])
    assert caught.value.fields["epoch"] == 2


def test_a_sink_that_is_ahead_of_all_lineage_is_an_error() -> None:
    history = chain(6)
    with pytest.raises(LogDamaged, match="it has epoch 5, and the log's history ends with epoch 2"):
        choose(history[:3], [seen(history[5])])


def test_a_sink_of_another_log_is_an_error() -> None:
    with pytest.raises(SinkError, match="epoch 1 of another history"):
        choose(chain(4), [seen(chain(2, seed=99)[1])])


def test_epochs_whose_layers_are_all_there_extend_the_history() -> None:
    history = chain(5)
    assert extend(History(history[:3]), history[3:], 3) == history[:4]
    assert extend(History(history[:3]), history[4:], 4) == history[:3]


def test_lines_give_lineages_back_and_damage_shows() -> None:
    history = [*chain(2), chain(3)[2].answered({"op": {"q": "a"}})]
    lines = to_lines(history)
    assert from_lines(lines) == history
    with pytest.raises(ValueError, match="does not have its digest"):
        from_lines(lines.replace(b'"q":"a"', b'"q":"b"'))
    with pytest.raises(ValueError, match="does not have its digest"):
        from_lines(lines.replace(b'"n":1', b'"n":2'))
