"""The mark of a nondeterministic function, and when two functions mean the same."""

from __future__ import annotations

from collections.abc import Callable

import holdfast as hf
from holdfast.frontend.user_functions import is_nondeterministic, meaning


def _adder(amount: int) -> Callable[[int], int]:
    return lambda value: value + amount


def test_a_marked_function_is_the_function() -> None:
    @hf.nondeterministic
    def look_up(value: int) -> int:
        return value + 1

    assert is_nondeterministic(look_up)
    assert look_up(1) == 2
    assert not is_nondeterministic(_adder)


def test_a_builtin_and_a_method_can_be_marked() -> None:
    for function in (len, "a b".split):
        marked = hf.nondeterministic(function)
        assert is_nondeterministic(marked)
    assert hf.nondeterministic(len)("abc") == 3


def test_the_meaning_is_the_body_not_the_comments() -> None:
    def one(value: int) -> int:
        return value + 1

    first = meaning(one)

    def one(value: int) -> int:  # type: ignore[no-redef]  # the same again, with a comment
        # it adds one
        return value + 1

    assert meaning(one) == first

    def one(value: int) -> int:  # type: ignore[no-redef]
        return value + 2

    assert meaning(one) != first


def test_the_meaning_depends_on_the_values_that_are_closed_over() -> None:
    assert meaning(_adder(1)) == meaning(_adder(1))
    assert meaning(_adder(1)) != meaning(_adder(2))


def test_the_meaning_of_a_function_without_a_text_is_its_code() -> None:
    def made(text: str) -> Callable[..., object]:
        found: dict[str, Callable[..., object]] = {}
        exec(text, found)
        return found["f"]

    assert meaning(made("def f(x): return x + 1")) == meaning(made("\n\ndef f(x): return x + 1"))
    assert meaning(made("def f(x): return x + 1")) != meaning(made("def f(x): return x + 2"))
