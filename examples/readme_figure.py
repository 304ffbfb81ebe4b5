"""Make docs/images/penguins.png, the picture of the README.

    pip install -r benchmarks/requirements-tables.txt
    python examples/readme_figure.py

The table of the Palmer penguins loses 15 % of its numbers and of its column `sex`, besides those that it
lacks itself, and models are fitted to the rest. At the top left the map of the rows, below it filled entries
beside the true ones, and at the right the explorer's page, photographed in headless Chromium. The models do
not see the species.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.collections import EllipseCollection
from palmerpenguins import load_penguins  # pyright: ignore[reportMissingImports]
from PIL import Image

from srflvm import SRFLVM, SRFLVMImputer, plot
from srflvm.plot.style import COLOURS, INK

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests"))

TARGET = ROOT / "docs" / "images" / "penguins.png"
SHARE_HIDDEN = 0.15
SHOWN = "body_mass_g"

# Pixels: those of the whole picture, and those of the page in it, at this zoom of the browser.
WIDTH, HEIGHT = 2000, 1000
PAGE_WIDTH, ZOOM = 1250, 1.25
GAP = 20
DPI = 200


def hide(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return which entries are hidden, and the table without them."""
    rng = np.random.default_rng(0)
    hidden = pd.DataFrame(rng.uniform(size=table.shape) < SHARE_HIDDEN, table.index, table.columns)
    hidden[["island", "year"]] = False
    return hidden, table.mask(hidden)


def draw_map(ax: Any, model: SRFLVM, species: pd.Series) -> None:
    """Draw the rows with ellipses of one standard deviation."""
    plot.embedding(model, species, ax=ax, ellipses=1.0, size=8.0, alpha=1.0, names="legend")
    for collection in ax.collections:
        if isinstance(collection, EllipseCollection):
            collection.set_alpha(0.05)
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(handles, labels, loc="upper right", frameon=False, markerscale=1.5, handletextpad=0.0)
    ax.set_aspect("auto")
    ax.set_title("The map, with error ellipses")
    ax.spines[["top", "right"]].set_visible(False)


def draw_filled(
    ax: Any, truth: pd.DataFrame, hidden: pd.DataFrame, imputer: SRFLVMImputer, species: pd.Series
) -> None:
    """Draw filled entries of a column, with 90 % intervals, against the true ones."""
    table = truth.mask(hidden)
    rows = (hidden[SHOWN] & truth[SHOWN].notna()).to_numpy()
    low, high = (end[SHOWN].to_numpy()[rows] / 1000 for end in imputer.interval(table, level=0.9))
    filled = imputer.transform(table)[SHOWN].to_numpy()[rows] / 1000
    true = truth[SHOWN].to_numpy()[rows] / 1000
    names = sorted(species.unique())
    colours = np.array([COLOURS[names.index(name)] for name in species[rows]])
    ends = np.array([true.min() - 0.2, true.max() + 0.2])
    ax.plot(ends, ends, color="#bbbbbb", linewidth=1.0, zorder=0)
    ax.vlines(true, low, high, color=colours, linewidth=1.2, alpha=0.5)
    ax.scatter(true, filled, s=12, color=colours, zorder=3, linewidths=0)
    inside = int(np.sum((low <= true) & (true <= high)))
    note = f"{inside} of {len(true)} true values\nin their 90 % interval"
    ax.text(0.03, 0.97, note, transform=ax.transAxes, va="top")
    ax.set_title("Missing body masses, filled")
    ax.set(xlabel="true, kg", ylabel="filled, kg", xlim=ends)
    ax.spines[["top", "right"]].set_visible(False)


def photograph(page: Path, point: np.ndarray, width: int, height: int) -> Image.Image:
    """Return a picture of the explorer's page, of this size, with the pointer at a latent point."""
    from helpers import browsers  # pyright: ignore[reportMissingImports]

    with tempfile.TemporaryDirectory() as folder:
        driver = browsers.start(Path(folder))
        try:
            size = {"width": round(width / ZOOM), "height": round(height / ZOOM)}
            metrics = size | {"deviceScaleFactor": ZOOM, "mobile": False}
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
            driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
            driver.get(page.as_uri())
            driver.execute_async_script("srflvm.then(({app}) => { window.app = app; arguments[0](); })")
            driver.execute_async_script(
                """
                const [x, y, done] = arguments;
                const marks = document.getElementById("marks"), box = marks.getBoundingClientRect();
                const [across, down] = app.plane.camera.toScreen(x, y);
                marks.dispatchEvent(new PointerEvent("pointermove", {
                  pointerId: 1, clientX: box.left + across, clientY: box.top + down, bubbles: true }));
                requestAnimationFrame(() => requestAnimationFrame(done));
                """,
                *map(float, point),
            )
            found = Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB")
        finally:
            driver.quit()
    return found.resize((width, height)) if found.size != (width, height) else found


def main() -> None:
    """Fit, draw, photograph, and write the picture."""
    table = load_penguins()
    species = table.pop("species")
    hidden, holes = hide(table)
    model = SRFLVM(random_state=0).fit(holes)
    imputer = SRFLVMImputer(random_state=0).fit(holes)

    mpl.rcParams |= {
        "font.size": 8,
        "axes.titlesize": 9,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.labelcolor": INK,
        "text.color": INK,
        "axes.edgecolor": "#999999",
        "xtick.color": "#666666",
        "ytick.color": "#666666",
    }
    size = ((WIDTH - PAGE_WIDTH - GAP) / DPI, HEIGHT / DPI)
    figure, (above, below) = plt.subplots(2, 1, figsize=size, layout="constrained")
    figure.get_layout_engine().set(h_pad=0.1, hspace=0.04)  # pyright: ignore
    draw_map(above, model, species)
    draw_filled(below, table, hidden, imputer, species)
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=DPI, facecolor="white")

    with tempfile.TemporaryDirectory() as folder:
        page = model.explore(Path(folder) / "page.html", data=holes, labels=species, title="Palmer penguins")
        middle = np.median(model.embedding_[species == "Gentoo"], axis=0)
        right = photograph(page, middle, PAGE_WIDTH, HEIGHT)
    whole = Image.new("RGB", (WIDTH, HEIGHT), "white")
    whole.paste(Image.open(buffer).convert("RGB"), (0, 0))
    whole.paste(right, (WIDTH - PAGE_WIDTH, 0))
    TARGET.parent.mkdir(exist_ok=True)
    whole.quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(TARGET, optimize=True)
    print(f"{TARGET.relative_to(ROOT)}: {TARGET.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
