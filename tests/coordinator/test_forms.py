"""What a view was, epoch by epoch: edits, drops and returns, as the lineage tells them."""

from __future__ import annotations

from typing import Any

from holdfast.coordinator.lineage import GENESIS, Lineage, from_lines, to_lines
from holdfast.coordinator.view_versions import Span, ViewVersion, ViewVersions, described

A, B = ViewVersion("a-log", ("bigint",), (0,)), ViewVersion("b-log", ("bigint",), ())


def history(*views: dict[str, ViewVersion] | None) -> list[Lineage]:
    found: list[Lineage] = []
    for epoch, said in enumerate(views):
        forms: Any = None if said is None else {name: form.to_json() for name, form in said.items()}
        parent = found[-1].digest if found else GENESIS
        found.append(Lineage(epoch, parent, {}, 0, epoch, views=forms))
    return found


def test_a_view_has_the_form_that_the_last_record_before_an_epoch_says() -> None:
    forms = ViewVersions(history({"v": A}, None, {"v": B}, None))
    assert list(forms.of("v")) == [Span(0, 1, A), Span(2, None, B)]
    assert [forms.at("v", epoch) for epoch in range(4)] == [0, 0, 1, 1]
    assert forms.changed == 2 and forms.present() == {"v": B}
    assert list(forms.of("w")) == []


def test_a_record_that_says_the_same_changes_nothing() -> None:
    forms = ViewVersions(history({"v": A}, {"v": A, "w": B}))
    assert list(forms.of("v")) == [Span(0, None, A)]
    assert list(forms.of("w")) == [Span(1, None, B)]
    assert forms.at("w", 0) == 0, "before its first record a view had its first form"


def test_a_view_that_was_dropped_comes_back_as_another_span_even_if_it_is_the_same() -> None:
    forms = ViewVersions(history({"v": A}, {}, None, {"v": A}))
    assert list(forms.of("v")) == [Span(0, 0, A), Span(3, None, A)]
    assert forms.at("v", 2) == 0


def test_a_log_of_old_says_what_its_views_were_in_its_description() -> None:
    entry = {"kind": "view", "fields": [["n", "bigint"]], "fingerprint": "a-log", "key": [0]}
    forms = ViewVersions(history(None, None, {"v": B}), described({"v": entry}))
    assert list(forms.of("v")) == [Span(-1, 1, A), Span(2, None, B)]


def test_the_lineage_keeps_what_views_are_and_its_digest_tells_them_apart() -> None:
    one, other = history({"v": A})[0], history({"v": B})[0]
    assert one.digest != other.digest != history(None)[0].digest
    assert from_lines(to_lines([one])) == [one]
