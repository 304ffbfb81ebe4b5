// What is decoded along a line through the plane: a strip of images, or the columns that change most.

const PATH_STEPS = 9;
const LINE_STEPS = 33;
const MOST_LINES = 6;

class Along {
  constructor(app, host) {
    this.app = app;
    this.host = host;
    this.update = oncePerFrame(() => this._update());
    app.store.on(["path", "held", "theme"], this.update);
  }

  _update() {
    const path = this.app.store.get("path");
    this.host.replaceChildren();
    if (!path) return;
    if (this.app.payload.image_shape) this._strip(path);
    else this._lines(path);
  }

  /** [{mean, std}] at equal steps from the start to the end. */
  _decode([start, end], steps) {
    const held = this.app.heldRow(...start);
    return Array.from({ length: steps }, (_, k) => {
      const [x, y] = start.map((value, i) => value + (k / (steps - 1)) * (end[i] - value));
      return this.app.decoder.decode(this.app.pointAt(x, y, held));
    });
  }

  _strip(path) {
    const [height, width] = this.app.payload.image_shape;
    const [low, high] = this.app.payload.image_range;
    const strip = make("div", { className: "strip" });
    for (const { mean } of this._decode(path, PATH_STEPS)) {
      const canvas = make("canvas", { width, height, className: "picture" });
      drawPicture(canvas, mean, low, high, this.app.ink());
      strip.append(canvas);
    }
    this.host.append(strip);
  }

  _lines(path) {
    const decoded = this._decode(path, LINE_STEPS);
    for (const column of columnsThatChange(this.app.columns, decoded)) {
      const mean = decoded.map((point) => point.mean[column]);
      const std = decoded.map((point) => point.std[column]);
      const name = this.app.columns.names[column];
      const ends = `${formatNumber(mean[0])} → ${formatNumber(mean[LINE_STEPS - 1])}`;
      const label = make("span", { className: "bar-name", title: name }, name);
      const value = make("span", { className: "bar-value" }, ends);
      this.host.append(make("div", { className: "along-row" }, label, sparkline(mean, std), value));
    }
  }
}

/** The columns whose decoded mean moves most, relative to how the rows differ in them. */
function columnsThatChange(columns, decoded) {
  const move = (column) => {
    const [low, high] = finiteRange(decoded.map((point) => point.mean[column]));
    return (high - low) / (columns.spread[column] || Infinity);
  };
  const moves = columns.decoded.map((column) => ({ column, move: move(column) }));
  moves.sort((left, right) => right.move - left.move);
  return moves.slice(0, MOST_LINES).map(({ column }) => column);
}

/** A line with a band of one standard deviation on each side. */
function sparkline(mean, std) {
  const [width, height] = [150, 34];
  const bars = std.map((value) => (Number.isFinite(value) ? value : 0));
  const low = Math.min(...mean.map((value, i) => value - bars[i]));
  const high = Math.max(...mean.map((value, i) => value + bars[i]));
  const x = (i) => (i / (mean.length - 1)) * width;
  const y = (value) => height - 2 - ((value - low) / (high - low || 1)) * (height - 4);
  const place = (value, i) => `${x(i).toFixed(1)},${y(value).toFixed(1)}`;
  const upper = mean.map((value, i) => place(value + bars[i], i));
  const lower = mean.map((value, i) => place(value - bars[i], i)).reverse();
  const attributes = { class: "sparkline", "aria-hidden": "true", preserveAspectRatio: "none" };
  return svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, ...attributes },
    svg("polygon", { points: [...upper, ...lower].join(" "), class: "spark-band" }),
    svg("polyline", { points: mean.map(place).join(" "), class: "spark-line" }),
  );
}
