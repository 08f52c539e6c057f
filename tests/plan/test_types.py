"""Types as text: read back as they were, whatever the fields of structs are called."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, DataType, IntegerType, MapType, StringType, StructField, StructType

from holdfast.plan.schema import parse_type
from holdfast.plan.types import arrow_type, ddl_type, doubled_field, type_text

_NAMES = st.text(alphabet="ab1 ,:<>()`é", min_size=1, max_size=6)


def _struct(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    names = st.lists(_NAMES, min_size=1, max_size=3, unique_by=str.lower)
    return names.flatmap(lambda some: st.tuples(*(inner for _ in some)).map(lambda kinds: _made(some, kinds)))


def _made(names: list[str], kinds: tuple[DataType, ...]) -> DataType:
    return StructType([StructField(name, kind) for name, kind in zip(names, kinds, strict=True)])


_TYPES = st.recursive(
    st.sampled_from([IntegerType(), StringType()]),
    lambda inner: _struct(inner) | inner.map(ArrayType) | inner.map(lambda kind: MapType(StringType(), kind)),
    max_leaves=6,
)


def _arrow(kind: DataType) -> pa.DataType:
    if isinstance(kind, StructType):
        return pa.struct([pa.field(each.name, _arrow(each.dataType)) for each in kind.fields])
    if isinstance(kind, ArrayType):
        return pa.list_(pa.field("element", _arrow(kind.elementType)))
    if isinstance(kind, MapType):
        return pa.map_(pa.string(), _arrow(kind.valueType))
    return pa.int32() if isinstance(kind, IntegerType) else pa.string()


@given(_TYPES)
def test_a_type_is_read_back_whatever_its_fields_are_called(kind: DataType) -> None:
    text = type_text(kind)
    assert arrow_type(text) == _arrow(kind)
    assert parse_type(text, subject="a test") == text
    assert arrow_type(ddl_type(text)) == _arrow(kind)
    assert doubled_field(text) is None


@pytest.mark.parametrize(
    ("text", "ddl"),
    [
        ("struct<a:int>", "struct<`a`:int>"),
        ("struct<1:int,`a,b`:array<string>>", "struct<`1`:int,`a,b`:array<string>>"),
        ("map<string,struct<`a``b`:int>>", "map<string,struct<`a``b`:int>>"),
        ("array<int>", "array<int>"),
    ],
)
def test_spark_is_given_the_names_of_fields_in_quotes(text: str, ddl: str) -> None:
    assert ddl_type(text) == ddl
