"""A dataflow shown: as text, as a picture, and as JSON that is read back."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

from holdfast.operators.rewrites import rewrite
from holdfast.plan.dataflow import build
from holdfast.plan.drawing import Drawing, Measured, drawing
from holdfast.plan.explain import as_text
from holdfast.plan.nodes import Node, Source
from holdfast.plan.picture import as_html, as_svg
from holdfast.plan.schema import parse_schema

from ..planned import plan_sql
from .tpch import QUERIES, TABLES


def shown(**queries: str) -> Drawing:
    catalog: dict[str, Node] = {name: Source(name, parse_schema(text, subject=name)) for name, text in TABLES.items()}
    views: dict[str, Node] = {}
    for name, sql in queries.items():
        views[name] = rewrite(plan_sql(name, sql, {**catalog, **views}), keep=views.values())
    flow = build(views, {}, lambda _: True)
    measured = {mark: Measured(3, 2048, 17, 5, 2.5, 1.25) for mark in flow.operators}
    return drawing(flow, measured)


def test_text_says_what_each_operator_keeps_and_does_and_who_shares_it() -> None:
    found = shown(revenue=QUERIES["q05"], best="SELECT n_name FROM revenue ORDER BY revenue DESC LIMIT 1")
    text = as_text(found, "revenue")
    line = next(each for each in text.splitlines() if "aggregate by n_name" in each)
    assert "[stage 4; state 2.0 KB, 17 rows, 3 layers; last change 5 rows, mean 2.5; 1.2 ms per epoch; " in line
    assert "cost of the change; shared with best]" in line
    assert "cost of the change and what it matches" in text
    assert "4 exchanges per epoch" in text


def test_costs_that_do_not_follow_the_change_are_named() -> None:
    found = shown(
        groups="SELECT n_regionkey, collect_list(n_name) AS names FROM nation GROUP BY n_regionkey",
        numbered="SELECT n_name, lag(n_name) OVER (PARTITION BY n_regionkey ORDER BY n_name) AS before FROM nation",
        pairs="SELECT n_name, r_name FROM nation, region WHERE n_nationkey < r_regionkey",
    )
    assert {box.cost for box in found.boxes if box.kind in ("aggregate", "window", "join")} == {
        "of the group",
        "of the partition",
        "of a side",
    }


def test_a_picture_has_every_box_once_within_its_bounds_and_no_two_overlap() -> None:
    found = shown(share=QUERIES["q08"], profit=QUERIES["q09"])
    picture = ElementTree.fromstring(as_svg(found))
    width, height = float(picture.attrib["width"]), float(picture.attrib["height"])
    boxes = [each.attrib for each in picture.iter("{http://www.w3.org/2000/svg}rect") if each.attrib["class"] == "box"]
    assert len(boxes) == len(found.boxes)
    corners = [tuple(float(box[name]) for name in ("x", "y", "width", "height")) for box in boxes]
    for number, (x, y, wide, high) in enumerate(corners):
        assert x >= 0 and x + wide <= width and y >= 0 and y + high <= height
        for left, top, broad, tall in corners[:number]:
            assert x + wide <= left or left + broad <= x or y + high <= top or top + tall <= y
    lines = [each for each in picture.iter("{http://www.w3.org/2000/svg}path")]
    assert len(lines) == len(found.lines)


def test_sinks_are_in_the_text_and_in_the_picture() -> None:
    found = replace(shown(names="SELECT n_name FROM nation"), sinks={"names": ("sink Changelog", "sink Foreach")})
    assert as_text(found, "names").splitlines()[:2] == ["sink Changelog ◄", "sink Foreach ◄"]
    picture = as_svg(found)
    assert picture.count(">sinks</text>") == 1 and ">sink Changelog</text>" in picture
    assert picture.count("<path ") == len(found.lines) + 2
    again = Drawing.from_dict(json.loads(json.dumps(found.structure())))
    assert again.sinks == found.sinks and again.behind("names").sinks == found.sinks


def test_a_picture_names_the_views_and_cuts_nothing_off() -> None:
    columns = ", ".join(f"n_name AS a_rather_long_name_of_a_column_{number}" for number in range(12))
    picture = as_svg(shown(many=f"SELECT DISTINCT {columns} FROM nation"))
    assert 'class="view"' in picture and ">many</text>" in picture
    assert "…" not in picture and "a_rather_long_name_of_a_column_11" in picture


def test_a_page_has_no_column_without_content() -> None:
    found = replace(shown(v="SELECT n_name FROM nation"), measured={})
    assert "<th>stage</th>" in as_html(found, "flow") and "<th>ms per epoch</th>" not in as_html(found, "flow")


def test_a_page_has_a_row_for_each_operator_and_text_is_escaped() -> None:
    found = shown(v="SELECT n_name FROM nation WHERE n_name < 'a&b' AND n_regionkey > 3")
    page = as_html(found, "<flow>")
    assert "<h1>&lt;flow&gt;</h1>" in page and "a&amp;b" in page
    HTMLParser().feed(page)
    assert page.count("<tr>") == 1 + sum(box.kind != "source" for box in found.boxes)


def test_a_drawing_is_read_back_from_its_json() -> None:
    found = shown(share=QUERIES["q08"])
    again = Drawing.from_dict(json.loads(json.dumps(found.structure())))
    assert (again.boxes, again.lines, again.views) == (found.boxes, found.lines, found.views)
    assert as_svg(found.behind("share")).startswith("<svg")
