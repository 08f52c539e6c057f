"""Edits of views, together with losses: what the simulator once found, cut down."""

from __future__ import annotations

from holdfast.testing.simulator import run
from holdfast.testing.simulator.actions import Close, Edit, Feed, LoseLayers, SinkWeather, Step, Upkeep, Weather


def test_a_kept_operator_that_reads_a_lost_new_one_is_computed_with_it() -> None:
    actions = [
        Step(host=0),
        Weather(location=2, fail_before=0.0, fail_after=0.5, truncate=0.2),
        Feed(seed=3609918733),
        Step(host=0),
        Upkeep(host=0),
        Edit(host=0, edition=1),
        Step(host=0),
        LoseLayers(host=0, seed=3022965804, share=0.1),
    ]
    assert run(5040, actions) is None


def test_a_view_that_was_filled_on_another_host_before_any_epoch_is_filled_again() -> None:
    actions = [
        Step(host=0),
        Edit(host=0, edition=0),
        Feed(seed=3273892832),
        Step(host=0),
        Close(host=0),
        Step(host=0),
        SinkWeather(failing=0.2),
        Edit(host=0, edition=1),
        Step(host=1),
    ]
    assert run(5030, actions) is None
