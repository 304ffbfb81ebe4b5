// The map of uncertainty: how much of the function's prior variance is left, as fog over the plane.

const FOG_CELLS = 72;

class Fog {
  /**
   * `shareAt(x, y)` is what is left of the prior variance at a place of the plane; `onChange` is called when
   * there is more to see.
   */
  constructor(shareAt, onChange) {
    this.shareAt = shareAt;
    this.onChange = onChange;
    this.canvas = document.createElement("canvas");
    this.bounds = null;
    this.job = 0;
  }

  /** Compute the fog of a view and a margin around it, coarsely first. */
  async update(camera, theme) {
    const job = ++this.job;
    for (const cells of [FOG_CELLS / 3, FOG_CELLS]) {
      const grid = gridOver(camera, cells);
      const shares = new Float32Array(grid.columns * grid.rows);
      const finished = await inSlices(
        shares.length,
        (i) => (shares[i] = this._share(grid, i)),
        () => job !== this.job,
      );
      if (!finished) return;
      this._paint(grid, shares, theme);
      this.onChange();
    }
  }

  /** Draw what is known into a canvas of the view, `ratio` pixels to one of the page. */
  draw(context, camera, ratio) {
    if (!this.bounds) return;
    const [left, top] = camera.toScreen(this.bounds.left, this.bounds.top);
    const [right, bottom] = camera.toScreen(this.bounds.right, this.bounds.bottom);
    context.imageSmoothingEnabled = true;
    context.imageSmoothingQuality = "high";
    const place = [left, top, right - left, bottom - top].map((value) => value * ratio);
    context.drawImage(this.canvas, ...place);
  }

  forget() {
    this.job++;
    this.bounds = null;
  }

  _share(grid, i) {
    const x = grid.left + ((i % grid.columns) + 0.5) * grid.step;
    const y = grid.top - (Math.floor(i / grid.columns) + 0.5) * grid.step;
    return this.shareAt(x, y);
  }

  _paint(grid, shares, theme) {
    const levels = Uint32Array.from({ length: 256 }, (_, i) => mixed(SURFACE[theme], FOG[theme], i / 255));
    this.canvas.width = grid.columns;
    this.canvas.height = grid.rows;
    const context = this.canvas.getContext("2d");
    const image = context.createImageData(grid.columns, grid.rows);
    const pixels = new Uint32Array(image.data.buffer);
    shares.forEach((share, i) => (pixels[i] = levels[Math.round(255 * share)]));
    context.putImageData(image, 0, 0);
    this.bounds = grid;
  }
}

/** Square cells over a view and a quarter more on each side. */
function gridOver(camera, cells) {
  const { left, right, bottom, top } = camera.bounds;
  const [across, up] = [1.5 * (right - left), 1.5 * (top - bottom)];
  const step = Math.max(across, up) / cells;
  const [columns, rows] = [Math.ceil(across / step), Math.ceil(up / step)];
  const start = (left + right) / 2 - (columns * step) / 2;
  const above = (bottom + top) / 2 + (rows * step) / 2;
  const [end, below] = [start + columns * step, above - rows * step];
  return { left: start, right: end, top: above, bottom: below, columns, rows, step };
}
