"""Schema texts: Spark's DDL in, fields with Spark's spelling of types out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import SchemaError
from holdfast.plan.nodes import Field
from holdfast.plan.schema import parse_schema


def types(text: str) -> list[str]:
    return [field.type for field in parse_schema(text, subject="source 's'")]


def test_a_schema_of_all_kinds_of_types_is_read() -> None:
    text = (
        "id long, user string, tags array<struct<a:int,b:string>>, d decimal(10,2), m map<string,int>, "
        "ts timestamp, n timestamp_ntz"
    )
    assert parse_schema(text, subject="source 's'") == (
        Field("id", "bigint"),
        Field("user", "string"),
        Field("tags", "array<struct<a:int,b:string>>"),
        Field("d", "decimal(10,2)"),
        Field("m", "map<string,int>"),
        Field("ts", "timestamp"),
        Field("n", "timestamp_ntz"),
    )


@pytest.mark.parametrize(
    ("written", "spelled"),
    [
        ("LONG", "bigint"),
        ("bigint", "bigint"),
        ("Integer", "int"),
        ("short", "smallint"),
        ("byte", "tinyint"),
        ("real", "float"),
        ("bool", "boolean"),
        ("dec", "decimal(10,0)"),
        ("numeric(5)", "decimal(5,0)"),
        ("timestamp_ltz", "timestamp"),
        ("interval day to second", "interval day to second"),
        ("INTERVAL YEAR", "interval year"),
        ("Array < Map < String , Struct < x : long , `y z` int > > >", "array<map<string,struct<x:bigint,`y z`:int>>>"),
        ("struct<a int, b: string COMMENT 'x', c int NOT NULL>", "struct<a:int,b:string,c:int>"),
    ],
)
def test_types_are_spelled_as_spark_spells_them(written: str, spelled: str) -> None:
    assert types(f"x {written}") == [spelled]


def test_not_null_comments_and_backticks_are_understood() -> None:
    fields = parse_schema("`a b` int NOT NULL COMMENT 'it''s', -- remark\n c /* x */ string, `d``e`: date", subject="s")
    assert [field.name for field in fields] == ["a b", "c", "d`e"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it has no columns"),
        ("id", "expected a type for column 'id', found the end"),
        ("id long user string", "expected ',' after column 'id', found 'user'"),
        ("id lnog", "'lnog' is not a type; did you mean 'long'?"),
        ("id long,", "expected a column name, found the end"),
        ("id long, ID int", "columns 'id' and 'ID' have the same name"),
        ("_diff long", "column '_diff' is reserved"),
        ("_epoch2 long", "column '_epoch2' is reserved"),
        ("_HASH long", "column '_HASH' is reserved"),
        ("a array<int", "expected '>' after the element type of column 'a'"),
        ("a array", "expected '<' after 'array', found the end"),
        ("a map<int>", "expected ',' between the key and value types of column 'a'"),
        ("a struct<x:int,X:int>", "the struct has field 'X' twice"),
        ("a struct<x:>", "expected a type for field 'x' of column 'a'"),
        ("a decimal(50)", "decimal(50,0) needs 1 <= precision <= 38"),
        ("a decimal(3,5)", "scale <= precision"),
        ("a varchar(3)", "type 'varchar' is not supported; use string"),
        ("a interval day to year", "there is no type interval day to year"),
        ("a int; b int", "cannot read '; b int'"),
        ("a int not", "expected 'null' after NOT"),
        ("`` int", "empty name"),
    ],
)
def test_nonsense_is_refused_with_the_piece_that_is_wrong(text: str, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        parse_schema(text, subject="source 's'")
    assert message in str(caught.value)
    assert str(caught.value).startswith("source 's': schema ")
    assert caught.value.fields["schema"] == text


TYPES = st.recursive(
    st.sampled_from(["bigint", "int", "string", "double", "date", "boolean", "decimal(7,3)", "timestamp_ntz"]),
    lambda inner: st.one_of(
        inner.map("array<{}>".format),
        st.tuples(inner, inner).map(lambda pair: f"map<{pair[0]},{pair[1]}>"),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda each: "struct<" + ",".join(f"f{place}:{kind}" for place, kind in enumerate(each)) + ">"
        ),
    ),
    max_leaves=6,
)


@given(st.lists(TYPES, min_size=1, max_size=4))
def test_what_is_spelled_is_read_back_as_it_is(kinds: list[str]) -> None:
    assert types(", ".join(f"c{place} {kind}" for place, kind in enumerate(kinds))) == kinds


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused_with_a_schema_error(text: str) -> None:
    try:
        parse_schema(text, subject="source 's'")
    except SchemaError as error:
        assert "source 's'" in str(error)
