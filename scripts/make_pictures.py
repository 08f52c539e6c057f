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
import time
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
        if epoch == 37:
            flow.wait_safe(timeout=60)
        if epoch == 10:  # Spark is warm
            progress = Progress()
        done = flow.step()
        if epoch >= 10:
            progress.add(done)
            time.sleep(0.1)
    progress.stands(flow.status())
    console.print(Screen(console, flow.name, progress)._table())
    console.print()  # the picture cuts the last line off below its letters
    svg = console.export_svg(title="holdfast run app.py")
    (IMAGES / "live.svg").write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S))  # no fonts from elsewhere
    (IMAGES / "dataflow.svg").write_text(as_svg(flow.drawing()))
    flow.close()


def notebook(place: Path) -> None:
    """The notebook of examples/, as a page, photographed."""
    shutil.rmtree(Path(tempfile.gettempdir()) / "holdfast-shop", ignore_errors=True)  # where the notebook has its flow
    made = nbformat.read(ROOT / "examples/shop.ipynb", as_version=4)
    NotebookClient(made, timeout=300, resources={"metadata": {"path": str(place)}}).execute()
    parts = []
    for cell in made.cells:
        if cell.cell_type == "markdown":
            parts += map(_paragraph, cell.source.split("\n\n"))
            continue
        parts.append(f"<pre class=code>{html.escape(cell.source)}</pre>")
        for output in cell.outputs:
            data = output.get("data", {})
            text = data.get("text/plain") or output.get("text", "")
            if data.get("text/html") or text:  # progress that was shown and taken away again is empty
                parts.append(data.get("text/html") or f"<pre>{html.escape(text)}</pre>")
    style = (
        "body { font: 14px system-ui, sans-serif; margin: 24px; width: 900px }"
        "code { background: #f4f5f7; padding: 0 3px } h2 { font-size: 20px }"
        ".code { background: #f4f5f7; padding: 8px }"
        "table { border-collapse: collapse; margin: 8px 0 } td, th { border: 1px solid #ccd; padding: 3px 8px }"
    )
    page = place / "notebook.html"
    height = "<script>onload = () => document.title = `height ${document.documentElement.scrollHeight}`</script>"
    page.write_text(f"<meta charset=utf-8><title></title><style>{style}</style>{height}{''.join(parts)}")
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("notebook.png was not made: there is no chromium on the PATH")
    browser = [chromium, "--headless", "--no-sandbox", "--hide-scrollbars", "--disable-gpu"]

    def run(*options: str) -> str:
        done = subprocess.run([*browser, *options, page.as_uri()], check=True, capture_output=True, text=True)
        return done.stdout

    found = re.search(r"<title>height (\d+)", run("--window-size=960,100", "--dump-dom"))
    assert found is not None
    run(f"--window-size=960,{int(found[1]) + 24}", f"--screenshot={IMAGES / 'notebook.png'}")


def _paragraph(text: str) -> str:
    """A paragraph of Markdown, as far as the notebook uses it."""
    said = re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text.lstrip("# ")))
    return f"<h2>{said}</h2>" if text.startswith("#") else f"<p>{said}</p>"


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        flow_and_live(Path(directory))
        notebook(Path(directory))
