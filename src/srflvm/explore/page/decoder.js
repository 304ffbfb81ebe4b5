// Decoding: from a latent point to means and standard deviations of all columns.
//
// The features of a point are sines, cosines, the point itself if the model has an affine part, with a zero
// behind an odd number of latents, and a constant of one. Their number is odd. An affine part has a scale for
// the waves, and one for each latent.
//
// Products of pairs of features are packed along cyclic diagonals, (i, i + d mod L) for d up to L / 2, so
// that a variance phi'V phi is the inner product of two vectors. If all channels have covariances in one basis,
// E diag(d) E', a variance is that of d and the squares of E'phi.

class Decoder {
  constructor(spec, nLatent, nColumns) {
    this.nLatent = nLatent;
    this.nColumns = nColumns;
    this.frequencies = readBlock(spec.frequencies);
    this.affine = readBlock(spec.affine);
    this.slopes = this.affine.subarray(1);
    this.weights = readBlock(spec.weights);
    this.level = readBlock(spec.level);
    this.rule = {
      nodes: readBlock(spec.nodes),
      weights: readBlock(spec.node_weights),
      partNodes: readBlock(spec.part_nodes),
      partWeights: readBlock(spec.part_weights),
    };
    this.shared = spec.covariances.shared;
    this.basis = spec.covariances.basis && readBlock(spec.covariances.basis);
    this.covariances = readBlock(spec.covariances.values);
    this.steps = spec.covariances.steps && readBlock(spec.covariances.steps);
    this.doubt = readBlock(spec.uncertainty);
    this.groups = spec.groups.map(readGroup);
    this.places = this._placeColumns();
    this.nWaves = this.frequencies.length / nLatent;
    this.waveScale = (this.affine[0] ?? 1) * this.nWaves ** -0.5;
    this.size = 2 * this.nWaves + this.slopes.length + (this.slopes.length % 2) + 1;
    this.features = new Float64Array(this.size);
    this.products = new Float64Array((this.size * (this.size + 1)) / 2);
    this.squares = new Float64Array(this.basis ? this.size : 0);
    this.regressors = this.basis ? this.squares : this.products;
    this.moments = new Float64Array(2);
  }

  /** {mean, std} of all columns at a point; NaN for columns that are not shipped. */
  decode(point) {
    this._moveTo(point, true);
    const mean = new Float64Array(this.nColumns).fill(NaN);
    const std = new Float64Array(this.nColumns).fill(NaN);
    for (const group of this.groups) {
      const found = this._groupMoments(group);
      group.columns.forEach((column, index) => {
        mean[column] = group.location[index] + group.scale[index] * found.mean[index];
        std[column] = group.scale[index] * Math.sqrt(found.variance[index]);
      });
    }
    return { mean, std };
  }

  /** The mean of one column at a point. */
  decodeColumn(point, column) {
    const place = this.places[column];
    if (!place) return NaN;
    const { group, index } = place;
    this._moveTo(point, group.kind !== "identity");
    const found = this._columnMean(group, index);
    return group.location[index] + group.scale[index] * found;
  }

  /** The variance of the function at a point, as a share of its prior variance. */
  uncertainty(point) {
    this._moveTo(point, false);
    this._multiplyPairs();
    const squares = innerProduct(this.features, this.features, 0);
    const share = (2 * innerProduct(this.products, this.doubt, 0)) / squares;
    return Math.min(Math.max(share, 0), 1);
  }

  decodes(column) {
    return Boolean(this.places[column]);
  }

  _placeColumns() {
    const places = new Array(this.nColumns);
    for (const group of this.groups) {
      group.columns.forEach((column, index) => (places[column] = { group, index }));
    }
    return places;
  }

  _moveTo(point, withProducts) {
    for (let l = 0; l < this.nWaves; l++) {
      let phase = 0;
      for (let q = 0; q < this.nLatent; q++) phase += point[q] * this.frequencies[l * this.nLatent + q];
      this.features[l] = this.waveScale * Math.sin(phase);
      this.features[this.nWaves + l] = this.waveScale * Math.cos(phase);
    }
    this.slopes.forEach((slope, q) => (this.features[2 * this.nWaves + q] = slope * point[q]));
    this.features[this.size - 1] = 1;
    if (!withProducts) return;
    if (this.basis) this._squareRotated();
    else this._multiplyPairs();
    this.sharedVariance = this.shared ? this._form(0) : NaN;
  }

  _squareRotated() {
    const { features, squares, basis, size } = this;
    squares.fill(0);
    for (let i = 0, k = 0; i < size; i++) {
      for (let j = 0; j < size; j++) squares[j] += features[i] * basis[k++];
    }
    for (let j = 0; j < size; j++) squares[j] *= squares[j];
  }

  _multiplyPairs() {
    const { features, products, size } = this;
    for (let d = 0, k = 0; 2 * d < size; d++) {
      for (let i = 0; i < size - d; i++) products[k++] = features[i] * features[i + d];
      for (let i = size - d; i < size; i++) products[k++] = features[i] * features[i + d - size];
    }
  }

  _form(channel) {
    const { regressors, covariances } = this;
    const value = innerProduct(regressors, covariances, channel * regressors.length);
    return Math.max(this.steps ? this.steps[channel] * value : value, 0);
  }

  /** Mean and variance of channel c of a group into `this.moments`. */
  _channel(group, c, withVariance) {
    const channel = group.start + c;
    const mean = this.level[channel] + innerProduct(this.features, this.weights, channel * this.size);
    const variance = !withVariance ? 0 : this.shared ? this.sharedVariance : this._form(channel);
    expectedMoments(group, c, mean, variance, this.rule, this.moments);
  }

  _channels(group, first, count) {
    const mean = new Float64Array(count);
    const variance = new Float64Array(count);
    for (let c = 0; c < count; c++) {
      this._channel(group, first + c, true);
      [mean[c], variance[c]] = this.moments;
    }
    return { mean, variance };
  }

  /** Moments of the columns of a group in model units. */
  _groupMoments(group) {
    const found = this._channels(group, 0, group.channels);
    if (group.kind === "shares") return sharesFromSteps(found.mean, found.variance);
    if (group.kind !== "categorical") return found;
    const codes = group.sizes.map((size, j) =>
      codeFromSteps(found.mean.subarray(group.offsets[j], group.offsets[j] + size), group.orders[j]),
    );
    return { mean: codes.map((code) => code.mean), variance: codes.map((code) => code.variance) };
  }

  _columnMean(group, index) {
    if (group.kind === "shares") return this._groupMoments(group).mean[index];
    if (group.kind === "categorical") {
      const steps = this._channels(group, group.offsets[index], group.sizes[index]).mean;
      return codeFromSteps(steps, group.orders[index]).mean;
    }
    this._channel(group, index, group.kind !== "identity");
    return this.moments[0];
  }
}

function readGroup(spec) {
  const parameters = {};
  for (const [name, block] of Object.entries(spec.parameters)) parameters[name] = readBlock(block);
  const offsets = [];
  const orders = [];
  let total = 0;
  for (const size of spec.sizes ?? []) {
    // a column has one code more than steps
    const first = total + offsets.length;
    orders.push(spec.order?.slice(first, first + size + 1));
    offsets.push(total);
    total += size;
  }
  return { ...spec, parameters, offsets, orders, location: readBlock(spec.location), scale: readBlock(spec.scale) };
}

/** The sum of left[i] * right[start + i]. Four sums at a time keep the processor busy. */
function innerProduct(left, right, start) {
  const length = left.length;
  let a = 0;
  let b = 0;
  let c = 0;
  let d = 0;
  let i = 0;
  for (; i + 3 < length; i += 4) {
    a += left[i] * right[start + i];
    b += left[i + 1] * right[start + i + 1];
    c += left[i + 2] * right[start + i + 2];
    d += left[i + 3] * right[start + i + 3];
  }
  for (; i < length; i++) a += left[i] * right[start + i];
  return a + b + c + d;
}
