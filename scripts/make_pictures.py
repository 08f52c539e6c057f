"""Makes the pictures of docs/images: `python scripts/make_pictures.py`; the notebook's needs Chromium on the PATH.

They are of real runs: a small flow, and the notebook of examples/.
"""

from __future__ import annotations

import html
import io
import random
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from rich.console import Console

import holdfast as hf
from holdfast.plan.picture import as_svg
from holdfast.terminal.live import Progress, Screen

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs/images"


def flow_and_live(place: Path) -> None:
    """The dataflow of a shop, and what `holdfast run` shows while it runs."""
    flow = hf.Flow("shop", log=place / "log")
    orders = flow.input("orders", schema="id long, user string, amount double")
    users = flow.input("users", schema="name string, city string", key="name")
    flow.view("spend", "SELECT user, sum(amount) AS total FROM orders GROUP BY user")
    flow.view(
        "by_city", "SELECT u.city, sum(s.total) AS total FROM spend s JOIN users u ON s.user = u.name GROUP BY u.city"
    )
    flow.view("top", "SELECT user, total FROM spend ORDER BY total DESC LIMIT 3")
    flow.sink("top", hf.snapshot_table(place / "top.parquet"))
    flow.sink("by_city", hf.changelog(place / "by_city"))
    seed = random.Random(1)
    users.upsert([(f"u{n}", seed.choice(["Bern", "Graz", "Linz"])) for n in range(1000)])
    console = Console(record=True, width=72, force_terminal=True, file=io.StringIO())
    for epoch in range(40):
        orders.insert([(epoch * 5000 + n, f"u{seed.randrange(1000)}", seed.random() * 100) for n in range(5000)])
        if epoch == 10:  # Spark is warm
            progress = Progress()
        done = flow.step()
        if epoch >= 10:
            progress.add(done)
    progress.stands(flow.status())
    console.print(Screen(console, flow.name, progress)._table())
    svg = console.export_svg(title="holdfast run app.py")
    (IMAGES / "live.svg").write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S))  # no fonts from elsewhere
    (IMAGES / "dataflow.svg").write_text(as_svg(flow.drawing()))
    flow.close()


def notebook(place: Path) -> None:
    """The notebook of examples/, as a page, photographed."""
    made = nbformat.read(ROOT / "examples/shop.ipynb", as_version=4)
    NotebookClient(made, timeout=300, resources={"metadata": {"path": str(place)}}).execute()
    parts = []
    for cell in made.cells:
        if cell.cell_type == "markdown":
            parts += [f"<p>{html.escape(text).removeprefix('# ')}</p>" for text in cell.source.split("\n\n")]
            continue
        parts.append(f"<pre class=code>{html.escape(cell.source)}</pre>")
        for output in cell.outputs:
            data = output.get("data", {})
            parts.append(data.get("text/html") or f"<pre>{html.escape(data.get('text/plain') or output.text)}</pre>")
    style = (
        "body { font: 14px system-ui, sans-serif; margin: 24px; width: 900px }"
        ".code { background: #f4f5f7; padding: 8px }"
        "table { border-collapse: collapse; margin: 8px 0 } td, th { border: 1px solid #ccd; padding: 3px 8px }"
    )
    page = place / "notebook.html"
    page.write_text(f"<meta charset=utf-8><style>{style}</style>{''.join(parts)}")
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("notebook.png was not made: there is no chromium on the PATH")
    options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=960,2100", "--disable-gpu"]
    subprocess.run(
        [chromium, *options, f"--screenshot={IMAGES / 'notebook.png'}", page.as_uri()], check=True, capture_output=True
    )


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        flow_and_live(Path(directory))
        notebook(Path(directory))
