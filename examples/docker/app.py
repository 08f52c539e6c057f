"""Visits per page, from files of JSON lines, for ``holdfast run``."""

import os

import holdfast as hf

flow = hf.Flow("revenue", log=os.environ.get("HOLDFAST_STATE", "state"))
flow.source(
    "visits",
    hf.files(os.environ.get("HOLDFAST_DATA", "visits"), format="json", schema="page string, revenue double"),
)
flow.view("pages", "SELECT page, count(*) AS visits, sum(revenue) AS revenue FROM visits GROUP BY page")
