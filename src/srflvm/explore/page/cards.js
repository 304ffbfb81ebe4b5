// The cards beside the plane: what is decoded, the nearest rows, the selection.

const NEAREST_ROWS = 6;

class DecodedCard {
  constructor(app) {
    this.app = app;
    this.update = oncePerFrame(() => this._update());
    this.empty = !app.columns.decoded.length;
    if (app.payload.image_shape) this.pictures = new Pictures(app, element("pictures"));
    else this.profile = new Profile(app, element("profile"));
    this._foot();
    app.store.on(["cursor", "pinned", "dims", "held", "painted"], this.update);
    element("order").addEventListener("change", this.update);
  }

  _foot() {
    const { columns } = this.app;
    const shown = this.profile ? this.profile.bars.length : 0;
    const choice = shown > 0 && columns.decoded.length > shown;
    element("profile-foot").hidden = !shown;
    element("order-field").hidden = !choice;
    if (!choice) element("order").value = "data";
    const scales = this.profile?.common ? "one scale for all" : "each on its own scale";
    const count = choice ? `${shown} of ${formatCount(columns.decoded.length)}, ` : "";
    element("profile-count").textContent = count + scales;
  }

  _update() {
    const cursor = this.app.store.get("cursor");
    if (!cursor) return;
    const point = this.app.cursorPoint();
    const nearest = nearestRows(this.app.rows.latents, this.app.rows.nLatent, point, NEAREST_ROWS);
    this._facts(cursor, point);
    showNearest(this.app, nearest);
    if (this.empty) return;
    const decoded = this.app.decoder.decode(point);
    if (this.pictures) this.pictures.show(decoded, nearest[0].row);
    else this.profile.show(decoded, element("order").value);
  }

  _facts([x, y], point) {
    const flat = this.app.store.get("dims")[1] === null;
    element("where").textContent = flat ? formatNumber(x) : `(${formatNumber(x)}, ${formatNumber(y)})`;
    const left = Math.round(100 * this.app.decoder.uncertainty(point));
    element("sure").textContent = `${left} % of the prior variance left`;
    element("pin-state").hidden = !this.app.store.get("pinned");
  }
}

function showNearest(app, nearest) {
  const painted = app.store.get("painted");
  const items = nearest.map(({ row, distance }) => {
    const button = make("button", { type: "button", title: "Go to this row" });
    const label = app.rows.label(row);
    button.append(
      swatch(hexOf(painted.colours[row]), painted.shapes[row]),
      make("span", { className: "row-name" }, app.rows.name(row)),
      make("span", { className: "row-label" }, label ?? ""),
      make("span", { className: "row-distance" }, formatNumber(distance)),
    );
    button.addEventListener("click", () => app.findRow(row));
    return make("li", {}, button);
  });
  replaceKeepingFocus(element("nearest"), items);
  app.plane.neighbours = nearest.map(({ row }) => row);
  app.plane.remark();
}

function bindSelection(app) {
  const update = ({ selection, theme }) => {
    const some = selection.length > 0;
    element("selection-text").textContent = some
      ? `${formatCount(selection.length)} of ${formatCount(app.rows.count)} rows`
      : "Nothing is selected. Use the lasso, or hold shift and drag around some rows.";
    element("csv").disabled = element("selection-clear").disabled = !some;
    showShares(app, selection, theme);
  };
  app.store.on(["selection", "theme"], update);
  element("csv").addEventListener("click", () => {
    const text = csvOfRows(app, app.store.get("selection"));
    saveAs("selection.csv", new Blob([text], { type: "text/csv;charset=utf-8" }));
  });
  element("selection-clear").addEventListener("click", () => app.select(new Int32Array(0)));
  update(app.store.values);
}

/** Which classes the selected rows have, the most frequent first. */
function showShares(app, selection, theme) {
  const { labels } = app.rows;
  const host = element("selection-classes");
  host.replaceChildren();
  if (!selection.length || !labels || labels.kind !== "classes") return;
  const counts = new Map();
  for (const row of selection) counts.set(labels.codes[row], (counts.get(labels.codes[row]) ?? 0) + 1);
  const order = [...counts].sort((left, right) => right[1] - left[1]).slice(0, 8);
  for (const [code, count] of order) {
    const missing = code === NO_LABEL;
    const colour = missing ? MISSING_COLOUR[theme] : classColour(code, theme);
    const name = missing ? "no label" : labels.names[code];
    const mark = swatch(colour, missing ? 0 : classShape(code));
    host.append(make("span", { className: "share" }, mark, `${name} ${formatCount(count)}`));
  }
}

function bindPathCard(app) {
  const along = new Along(app, element("along"));
  app.store.on(["path"], ({ path }) => (element("path-card").hidden = !path));
  element("path-clear").addEventListener("click", () => app.store.set({ path: null }));
  return along;
}
