// Which colour every row has: by label, by uncertainty, by a column, or all the same.

class Colouring {
  constructor(app) {
    this.app = app;
    this.decoded = new Map();
    this.job = 0;
    app.store.on(["colourBy", "column", "theme"], () => this.update());
  }

  async update() {
    const job = ++this.job;
    const { colourBy, column } = this.app.store.values;
    const paint = {
      labels: () => this._labels(),
      uncertainty: () => this._uncertainty(),
      column: () => this._column(column, job),
    };
    const painted = await (paint[colourBy] ?? (() => this._plain()))();
    if (painted && job === this.job) this.app.store.set({ painted });
  }

  _plain() {
    const colours = new Uint32Array(this.app.rows.count).fill(pixelOf(PLAIN_COLOUR[this._theme]));
    return this._painted(colours, { kind: "none" });
  }

  _labels() {
    const { labels } = this.app.rows;
    if (labels.kind === "numbers") return this._numbers(labels.values, "label");
    const colours = new Uint32Array(this.app.rows.count);
    const shapes = new Uint8Array(this.app.rows.count);
    const known = labels.names.map((_, code) => pixelOf(classColour(code, this._theme)));
    const missing = pixelOf(MISSING_COLOUR[this._theme]);
    labels.codes.forEach((code, row) => {
      colours[row] = code === NO_LABEL ? missing : known[code];
      shapes[row] = code === NO_LABEL ? 0 : classShape(code);
    });
    return { colours, shapes, legend: { kind: "classes" } };
  }

  _uncertainty() {
    this.spread ??= this.app.rows.uncertainty();
    return this._numbers(this.spread, "standard deviation of the latent");
  }

  /** A column of the data if it is in the page, else what is decoded at each row. */
  async _column(column, job) {
    const { rows, columns } = this.app;
    const name = columns.names[column];
    const data = rows.data(column);
    if (data) return this._numbers(data, `${name}, data`);
    if (!this.app.decoder.decodes(column)) {
      return this._numbers(new Float32Array(rows.count).fill(NaN), `${name}, not in this page`);
    }
    if (!this.decoded.has(column)) {
      const values = await this._decode(column, job);
      if (!values) return null;
      this.decoded.set(column, values);
    }
    return this._numbers(this.decoded.get(column), `${name}, decoded mean`);
  }

  async _decode(column, job) {
    const { rows, decoder } = this.app;
    const values = new Float32Array(rows.count);
    const step = (row) => (values[row] = decoder.decodeColumn(rows.latent(row), column));
    const progress = (share) => this.app.busy(share < 1 ? `decoding ${Math.round(100 * share)} %` : "");
    const finished = await inSlices(rows.count, step, () => job !== this.job, progress);
    return finished ? values : null;
  }

  _numbers(values, caption) {
    const { colours, low, high } = coloursOfNumbers(values, this._theme);
    return this._painted(colours, { kind: "numbers", caption, low, high });
  }

  _painted(colours, legend) {
    return { colours, shapes: new Uint8Array(this.app.rows.count), legend };
  }

  get _theme() {
    return this.app.store.get("theme");
  }
}
