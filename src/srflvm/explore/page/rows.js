// The rows of the page: latents, names, labels, data.

class Rows {
  constructor(payload) {
    this.count = payload.n_rows;
    this.nLatent = payload.n_latent;
    this.latents = readBlock(payload.latents);
    this.ids = payload.ids;
    this.labels = payload.labels && readLabels(payload.labels);
    this._payload = payload;
    this._data = new Map();
    this.mean = this._meanLatent();
  }

  name(row) {
    return this.ids ? this.ids[row] : String(row);
  }

  /** The label of a row as text; null if there are no labels. */
  label(row) {
    const { labels } = this;
    if (!labels) return null;
    if (labels.kind === "numbers") return formatNumber(labels.values[row]);
    return labels.codes[row] === NO_LABEL ? "no label" : labels.names[labels.codes[row]];
  }

  latent(row) {
    return this.latents.subarray(row * this.nLatent, (row + 1) * this.nLatent);
  }

  /** One coordinate of all rows. Where there is no such dimension, rows are spread out evenly. */
  coordinate(dim) {
    const values = new Float32Array(this.count);
    for (let row = 0; row < this.count; row++) {
      values[row] = dim === null ? spreadOut(row) : this.latents[row * this.nLatent + dim];
    }
    return values;
  }

  /** Root mean square over the latent dimensions of the standard deviations of each row. */
  uncertainty() {
    const std = readCodes(this._payload.latent_std);
    return Float32Array.from({ length: this.count }, (_, row) => {
      let square = 0;
      for (let q = 0; q < this.nLatent; q++) square += std[row * this.nLatent + q] ** 2;
      return Math.sqrt(square / this.nLatent);
    });
  }

  /** A column of the data, or null if it is not in the page. */
  data(column) {
    const shipped = this._payload.data;
    const index = shipped ? shipped.columns.indexOf(column) : -1;
    if (index < 0) return null;
    if (!this._data.has(column)) this._data.set(column, readCodes(shipped.values[index]));
    return this._data.get(column);
  }

  get dataColumns() {
    return this._payload.data ? this._payload.data.columns : [];
  }

  _meanLatent() {
    const mean = new Float64Array(this.nLatent);
    for (let i = 0; i < this.latents.length; i++) mean[i % this.nLatent] += this.latents[i] / this.count;
    return mean;
  }
}

const NO_LABEL = 65535;

function readLabels(spec) {
  if (spec.kind === "numbers") return { kind: "numbers", values: readBlock(spec.values) };
  return { kind: "classes", names: spec.names, codes: readBlock(spec.codes) };
}

/** Numbers between -1 and 1 without pattern, the same for the same row. */
function spreadOut(row) {
  return 2 * ((row * 0.6180339887498949) % 1) - 1;
}
