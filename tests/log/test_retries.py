"""Trying again: how often, after what, and who sleeps."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from holdfast.foundation.retries import attempts, relisted, retrying, wait_until


def failing(errors: list[Exception]) -> Callable[[], int]:
    """A function that raises these, one at each call, and then returns how often it was called."""
    calls = []

    def work() -> int:
        calls.append(1)
        if len(calls) <= len(errors):
            raise errors[len(calls) - 1]
        return len(calls)

    return work


def test_an_error_that_may_pass_is_tried_again_after_each_pause_and_the_last_one_is_raised() -> None:
    slept: list[float] = []
    busy = [OSError(errno.EMFILE, str(number)) for number in range(4)]
    assert retrying(failing(busy[:2]), pauses=(1.0, 2.0, 3.0), sleep=slept.append) == 3 and slept == [1.0, 2.0]
    slept.clear()
    with pytest.raises(OSError, match="3"):
        retrying(failing(busy), pauses=(1.0, 2.0, 3.0), sleep=slept.append)
    assert slept == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    "error", [FileNotFoundError(errno.ENOENT, ""), PermissionError(errno.EACCES, ""), ValueError()]
)
def test_an_error_that_is_an_answer_is_raised_at_once(error: Exception) -> None:
    with pytest.raises(type(error)):
        retrying(failing([error]), pauses=(1.0,), sleep=lambda _: pytest.fail("nobody may wait for it"))


def test_errors_are_tried_again_by_type_or_as_a_function_says() -> None:
    assert retrying(failing([ValueError("a")]), on=ValueError, pauses=(0.0,)) == 2
    assert retrying(failing([KeyError(), ValueError()]), on=(ValueError, KeyError), pauses=(0.0, 0.0)) == 3
    with pytest.raises(ValueError, match="b"):
        retrying(failing([ValueError("a"), ValueError("b")]), on=lambda error: "a" in str(error), pauses=(0.0,) * 5)


def test_a_file_that_was_merged_away_is_looked_for_in_the_next_listing_and_not_for_ever() -> None:
    assert relisted(failing([FileNotFoundError()] * 4)) == 5
    with pytest.raises(FileNotFoundError):
        relisted(failing([FileNotFoundError()] * 5))


def test_attempts_say_which_is_the_last_and_without_pauses_nobody_sleeps() -> None:
    assert list(attempts((0.0, 0.0), lambda _: pytest.fail("nobody may sleep"))) == [False, False, True]
    assert list(attempts(())) == [True]


def test_waiting_ends_with_the_answer_or_with_the_time() -> None:
    answers = iter([[], [], ["yes"]])
    assert wait_until(lambda: next(answers), 60.0, 0.0) == ["yes"]
    assert wait_until(list, 0.0, 0.0) == [], "it is asked once, however little time there is"
