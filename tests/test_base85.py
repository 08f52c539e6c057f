"""Base85 is what Python's own is, byte for byte."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.foundation import base85


@given(st.binary(max_size=100))
def test_base85_is_written_and_read_as_python_does(data: bytes) -> None:
    text = base85.encode(data)
    assert text == base64.b85encode(data).decode()
    assert base85.decode(text) == data


@pytest.mark.parametrize("text", ["ab cd", 'a"bcd', "~~~~~", "ü"])
def test_what_is_not_base85_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Base85"):
        base85.decode(text)
