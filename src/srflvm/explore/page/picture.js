// Decoded rows as images: the mean, its standard deviation, and the nearest row if its data are in the page.

class Pictures {
  constructor(app, host) {
    this.app = app;
    [this.height, this.width] = app.payload.image_shape;
    this.range = app.payload.image_range;
    this.canvases = {};
    for (const [key, caption] of Object.entries(captions(app))) {
      const canvas = make("canvas", { width: this.width, height: this.height, className: "picture" });
      const text = make("figcaption", {}, caption);
      this.canvases[key] = { canvas, text };
      host.append(make("figure", {}, canvas, text));
    }
  }

  show({ mean, std }, nearest) {
    const [low, high] = this.range;
    this._draw("decoded", mean, low, high);
    this._draw("std", std, 0, (high - low) / 2);
    this.canvases.std.text.textContent = `std, at most ${formatNumber(finiteRange(std)[1])}`;
    if (this.canvases.row) this._draw("row", this._data(nearest), low, high);
  }

  _data(row) {
    return this.app.columns.names.map((_, column) => this.app.rows.data(column)[row]);
  }

  _draw(key, values, low, high) {
    drawPicture(this.canvases[key].canvas, values, low, high, this.app.ink());
  }
}

function captions(app) {
  const all = app.rows.dataColumns.length === app.columns.names.length;
  return all ? { decoded: "decoded", std: "std", row: "nearest row" } : { decoded: "decoded", std: "std" };
}

/** Numbers as an image from the background to the ink of the theme. Missing ones are hatched. */
function drawPicture(canvas, values, low, high, ink) {
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  const pixels = new Uint32Array(image.data.buffer);
  const levels = ink.levels;
  for (let i = 0; i < pixels.length; i++) {
    const share = Math.min(Math.max((values[i] - low) / (high - low || 1), 0), 1);
    const hatched = (i + Math.floor(i / canvas.width)) % 2;
    pixels[i] = Number.isNaN(share) ? levels[hatched ? 40 : 90] : levels[Math.round(255 * share)];
  }
  context.putImageData(image, 0, 0);
}
