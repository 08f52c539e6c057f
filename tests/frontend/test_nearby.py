"""What Spark refuses is found in the text of the view."""

from __future__ import annotations

import pytest

from holdfast.errors import TypeMismatch
from holdfast.frontend.nearby import placed


@pytest.mark.parametrize(
    ("marked", "near"),
    [
        ("SELECT x, ^no_such(k) AS y FROM t", "`no_such`"),
        ("SELECT x,\n  ^k + array(1) AS y FROM t", "(k + array(1))"),
        ("SELECT k, upper(k) AS u, ^k > array(1) AS y FROM t", "(k > array(1))"),
        ("SELECT k FROM t WHERE ^date_add(k, 'x') > now()", "date_add(k, x)"),
    ],
)
def test_the_place_is_where_the_text_has_the_same_words(marked: str, near: str) -> None:
    before = marked[: marked.index("^")]
    error = placed(TypeMismatch("view 'v': wrong", view="v", near=near), marked.replace("^", ""))
    place = (before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)
    assert (error.fields["line"], error.fields["column"]) == place
    assert str(error) == f"view 'v': wrong (line {place[0]}, column {place[1]})"


def test_what_is_not_in_the_text_has_no_place() -> None:
    error = TypeMismatch("view 'v': wrong", view="v", near="")
    assert placed(error, "SELECT x FROM t") is error
    assert "line" not in placed(TypeMismatch("wrong", near="nowhere(1)"), "SELECT x FROM t").fields
