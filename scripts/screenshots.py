"""Take the pictures of docs/tools.md again, with Chromium, from the tracked runs and plots of this repository.

    make repro                                  # once, commit; change a parameter, and once more
    dvc plots diff HEAD~1                       # writes dvc_plots/index.html
    make ui &
    python scripts/screenshots.py [--address http://127.0.0.1:5000] [--profile quick]

The pictures go to docs/images, in 64 colours, so that each has less than 150 kB.
"""

from __future__ import annotations

import base64
import io
import json
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "reports")]

import typer  # noqa: E402
from headless import Browser, find_browser  # noqa: E402
from mlflow import MlflowClient  # noqa: E402
from PIL import Image  # noqa: E402

FOLDER = ROOT / "docs" / "images"
WIDTH, COLOURS = 1400, 64
CLOSE_ASSISTANT = """[...document.querySelectorAll('button')]
    .filter(button => /close/i.test(button.getAttribute('aria-label') || '')).forEach(button => button.click())"""
ONLY_DIFFERENCES = """(() => {
    const switches = [...document.querySelectorAll('button[role=switch], .du-bois-light-switch')].slice(0, 2);
    switches.forEach(each => each.click());
    const title = [...document.querySelectorAll('*')].find(each => each.textContent.trim() === 'Visualizations');
    title?.click();
})()"""


def main(
    address: str = "http://127.0.0.1:5000", profile: str = "quick", plots: Path = ROOT / "dvc_plots" / "index.html"
) -> None:
    """Take every picture."""
    program = find_browser()
    if program is None:
        sys.exit("no Chromium or Chrome is installed")
    client = MlflowClient(address)
    experiment = client.get_experiment_by_name(f"capsules/{profile}").experiment_id
    newest = client.search_runs([experiment], "tags.stage = '(all)'", max_results=2)
    runs = f"{address}/#/experiments/{experiment}/runs"
    kind = "workflowType=machine_learning"
    both = json.dumps([run.info.run_id for run in reversed(newest)])
    compared = f"{address}/#/compare-runs?runs={both}&experiments={json.dumps([experiment])}&{kind}"
    FOLDER.mkdir(exist_ok=True)
    pages = {
        "mlflow-reproductions": (f"{runs}?viewStateShareKey=reproductions&{kind}", 560, ()),
        "mlflow-trainings": (f"{runs}?viewStateShareKey=trainings&{kind}", 560, ()),
        "mlflow-reproduction": (f"{runs}/{newest[0].info.run_id}?{kind}", 590, ()),
        "mlflow-compare": (compared, 1000, (ONLY_DIFFERENCES,)),
        "dvc-plots": (plots.absolute().as_uri(), 1000, ()),
    }
    for name, (url, height, scripts) in pages.items():
        with tempfile.TemporaryDirectory() as folder, Browser(program, Path(folder)) as browser:
            path = FOLDER / f"{name}.png"
            path.write_bytes(take(browser, url, height, (CLOSE_ASSISTANT, *scripts)))
            print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB")


def take(browser: Browser, url: str, height: int, scripts: tuple[str, ...]) -> bytes:
    """A screenshot of the page at `url` as PNG, `WIDTH` x `height` pixels, after the JavaScript of `scripts` ran."""
    browser.call("Emulation.setDeviceMetricsOverride", width=WIDTH, height=height, deviceScaleFactor=1, mobile=False)
    browser.call("Page.navigate", url=url)
    time.sleep(10)  # MLflow loads its parts one by one
    for script in scripts:
        browser.evaluate(script)
        time.sleep(2)
    picture = Image.open(io.BytesIO(base64.b64decode(browser.call("Page.captureScreenshot")["data"])))
    out = io.BytesIO()
    picture.convert("RGB").quantize(COLOURS).save(out, "png", optimize=True)
    return out.getvalue()


if __name__ == "__main__":
    typer.run(main)
