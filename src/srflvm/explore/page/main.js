// The page comes to life: what all parts share, and the first picture.

class App {
  constructor(payload) {
    this.payload = payload;
    this.rows = new Rows(payload);
    this.columns = readColumns(payload);
    this.store = new Store(this._start());
    this._inks = new Map();
  }

  /** Made when it is first needed, after the points are on the screen. */
  get decoder() {
    this._decoder ??= new Decoder(this.payload.decoder, this.rows.nLatent, this.columns.names.length);
    return this._decoder;
  }

  _start() {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    return {
      theme: dark ? "dark" : "light",
      colourBy: this.rows.labels ? "labels" : "none",
      column: this.payload.columns.first,
      dims: this.payload.dims,
      held: "row",
      fog: false,
      tool: "pan",
      cursor: null,
      pinned: false,
      path: null,
      found: null,
      selection: new Int32Array(0),
      emphasis: new Set(),
      painted: null,
    };
  }

  /** The colours of the theme for canvases, and the 256 levels of a picture. */
  ink() {
    const theme = this.store.get("theme");
    if (!this._inks.has(theme)) {
      const style = getComputedStyle(document.documentElement);
      const names = ["strong", "soft", "faint", "line", "accent", "wash", "surface"];
      const ink = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
      const ends = theme === "dark" ? ["#0c0f14", "#f4f6fa"] : ["#ffffff", "#10141b"];
      ink.levels = Uint32Array.from({ length: 256 }, (_, i) => mixed(...ends, i / 255));
      this._inks.set(theme, ink);
    }
    return this._inks.get(theme);
  }

  /** The row whose other coordinates are taken at a place of the plane; null for the mean of all rows. */
  heldRow(x, y) {
    if (this.rows.nLatent < 3 || this.store.get("held") === "mean") return null;
    return this.plane.nearestRow(x, y).row;
  }

  /** The latent point of a place of the plane. */
  pointAt(x, y, row) {
    const [across, up] = this.store.get("dims");
    const point = Float64Array.from(row === null ? this.rows.mean : this.rows.latent(row));
    point[across] = x;
    if (up !== null) point[up] = y;
    return point;
  }

  cursorPoint() {
    const cursor = this.store.get("cursor");
    return this.pointAt(...cursor, this.heldRow(...cursor));
  }

  /** The variance map is a slice through the pinned place, or through the mean of all rows. */
  fogPoint(x, y) {
    const { pinned, cursor } = this.store.values;
    return this.pointAt(x, y, pinned ? this.heldRow(...cursor) : null);
  }

  select(selection) {
    this.store.set({ selection });
    this.announce(`${selection.length} rows are selected.`);
  }

  findRow(row) {
    this.store.set({ found: row, cursor: this.plane.place(row), pinned: true });
    this.plane.showRow(row);
    this.announce(`Row ${this.rows.name(row)}.`);
  }

  clearMarks() {
    const nothing = { selection: new Int32Array(0), emphasis: new Set() };
    this.store.set({ pinned: false, found: null, path: null, ...nothing });
  }

  announce(text) {
    element("live").textContent = text;
  }

  announceCursor() {
    const [x, y] = this.store.get("cursor");
    const { row } = this.plane.nearestRow(x, y);
    this.announce(`${formatNumber(x)}, ${formatNumber(y)}. Nearest row ${this.rows.name(row)}.`);
  }

  busy(text) {
    element("busy").hidden = !text;
    element("busy").textContent = text;
  }

  warnings() {
    const unsupported = this.payload.decoder.unsupported.map(
      ({ likelihood, columns }) =>
        `${formatCount(columns.length)} columns of the likelihood “${likelihood}” cannot be decoded in a ` +
        "browser and are not shown.",
    );
    return [...this.payload.left_out, ...unsupported];
  }

  notes() {
    const rounding = this.payload.decoder.covariances.steps
      ? "Covariances of the weights are rounded to 16 bits: no variance of the function moves by 5e-5."
      : "Latents, weights and their covariances are in single precision.";
    const exact = "Data are exact for small whole numbers, else rounded to 16 bits of a column's range.";
    const data = this.payload.data ? [exact] : [];
    return [...this.warnings(), rounding, ...data, `Written by srflvm ${this.payload.version}.`];
  }
}

function readColumns({ columns, decoder }) {
  const parts = ["average", "spread", "low", "high"].map((name) => [name, readBlock(columns[name])]);
  const decoded = decoder.groups.flatMap((group) => group.columns).sort((left, right) => left - right);
  return { names: columns.names, decoded, ...Object.fromEntries(parts) };
}

function summaryText({ n_rows, n_latent, columns, likelihoods }) {
  const kinds = likelihoods.map((name) => name.replaceAll("_", " ")).join(", ");
  const latents = n_latent === 1 ? "1 latent dimension" : `${n_latent} latent dimensions`;
  const size = `${formatCount(n_rows)} rows · ${formatCount(columns.names.length)} columns`;
  return `${size} · ${kinds} · ${latents}`;
}

async function begin() {
  const app = new App(JSON.parse(element("payload").textContent));
  const { store } = app;
  const dress = () => {
    document.documentElement.dataset.theme = store.get("theme");
    element("theme").setAttribute("aria-pressed", String(store.get("theme") === "dark"));
  };
  dress();
  store.on(["theme"], dress);
  element("summary").textContent = summaryText(app.payload);
  app.plane = new Plane(app, element("frame"), element("points"), element("marks"));
  await new Colouring(app).update();
  await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
  const firstPaint = performance.now();
  store.on(["painted", "theme", "fog", "emphasis"], () => drawLegend(app));
  drawLegend(app);
  furnish(app);
  const [middle] = nearestRows(app.rows.latents, app.rows.nLatent, app.rows.mean, 1);
  store.set({ cursor: app.plane.place(middle.row) });
  return { app, firstPaint };
}

/** Everything around the plane. */
function furnish(app) {
  new DecodedCard(app);
  new PointerTools(app, app.plane);
  new KeyboardTools(app, app.plane);
  new Search(app, element("search"), element("results"));
  bindControls(app);
  bindSelection(app);
  bindPathCard(app);
  drawModelCharts(app);
  app.store.on(["theme"], () => drawModelCharts(app));
}

// for the console and for tests
window.srflvm = begin();
