// What an observation y is given the function f, for each kind of link, and averages of it over f.
//
// A link writes the mean and the variance of y given f for channel c of its group into `given`.

const LARGEST_LOG_MEAN = 40;

const LINKS = {
  identity(f, c, { noise }, given) {
    given[0] = f;
    given[1] = noise[c];
  },

  logistic(f, c, { trials }, given) {
    const share = sigmoid(f);
    given[0] = trials[c] * share;
    given[1] = given[0] * sigmoid(-f);
  },

  log(f, c, { excess }, given) {
    const mean = Math.exp(Math.min(f, LARGEST_LOG_MEAN));
    given[0] = mean;
    given[1] = mean + mean * mean * excess[c];
  },

  // measured from the lowest level, which leaves the variance as it is
  ordinal(f, c, { thresholds, levels }, given, nChannels) {
    let mean = 0;
    let square = 0;
    let height = 0;
    for (let k = 0; k * nChannels < thresholds.length; k++) {
      const beyond = sigmoid(f - thresholds[k * nChannels + c]);
      const next = levels[(k + 1) * nChannels + c] - levels[c];
      mean += (next - height) * beyond;
      square += (next * next - height * height) * beyond;
      height = next;
    }
    given[0] = levels[c] + mean;
    given[1] = Math.max(square - mean * mean, 0);
  },

  shares(f, c, parameters, given) {
    given[0] = sigmoid(f);
    given[1] = 0;
  },
};

// a code is found by breaking a stick of which each channel is one step
LINKS.categorical = LINKS.logistic;

function sigmoid(x) {
  return x >= 0 ? 1 / (1 + Math.exp(-x)) : Math.exp(x) / (1 + Math.exp(x));
}

/** Mean and whole variance of y for f ~ N(mean, variance), written into `out`. */
function expectedMoments(group, c, mean, variance, rule, out) {
  const link = LINKS[group.kind];
  if (group.kind === "identity") {
    out[0] = mean;
    out[1] = variance + group.parameters.noise[c];
    return;
  }
  if (group.kind === "transformed") {
    transformedMoments(group.parameters, c, mean, variance + group.parameters.noise[c], rule, out);
    return;
  }
  const root = Math.sqrt(variance);
  const given = expectedMoments.given;
  let first = 0;
  let second = 0;
  let noise = 0;
  for (let k = 0; k < rule.nodes.length; k++) {
    link(mean + root * rule.nodes[k], c, group.parameters, given, group.channels);
    first += rule.weights[k] * given[0];
    second += rule.weights[k] * given[0] * given[0];
    noise += rule.weights[k] * given[1];
  }
  out[0] = first;
  out[1] = Math.max(second - first * first, 0) + noise;
}
expectedMoments.given = new Float64Array(2);

// A transformed column is seen as v = (T(x) - centre) / spread. T is the logarithm, or that of Yeo and Johnson,
// and a straight line below `low` and above `high`.

const RANGE = 7;

function transformed(x, c, { is_log, exponent }) {
  if (is_log[c]) return Math.log(x);
  const power = x >= 0 ? exponent[c] : 2 - exponent[c];
  const size = Math.log1p(Math.abs(x));
  return Math.sign(x) * (power < 1e-6 ? size : Math.expm1(power * size) / power);
}

function transformedBack(t, c, { is_log, exponent }) {
  if (is_log[c]) return Math.exp(t);
  const power = t >= 0 ? exponent[c] : 2 - exponent[c];
  const size = Math.abs(t);
  return Math.sign(t) * Math.expm1(power < 1e-6 ? size : Math.log1p(power * size) / power);
}

/** dx/dT at x. */
function riseOf(x, c, { is_log, exponent }) {
  if (is_log[c]) return x;
  const power = x >= 0 ? exponent[c] : 2 - exponent[c];
  return Math.exp((1 - power) * Math.log1p(Math.abs(x)));
}

/** Mean and variance of x for v ~ N(mean, variance), in three parts, within each of which x is smooth. */
function transformedMoments(curve, c, mean, variance, { partNodes, partWeights }, out) {
  if (curve.is_plain[c]) {
    out[0] = mean;
    out[1] = variance;
    return;
  }
  const spread = curve.spread[c];
  const root = Math.sqrt(Math.max(variance, 1e-24));
  const ends = [curve.low[c], curve.high[c]].map((x) => ({
    t: transformed(x, c, curve),
    rise: riseOf(x, c, curve),
  }));
  const back = (v) => {
    const t = curve.centre[c] + spread * v;
    const inside = Math.min(Math.max(t, ends[0].t), ends[1].t);
    const rise = t < ends[0].t ? ends[0].rise : ends[1].rise;
    return transformedBack(inside, c, curve) + (t === inside ? 0 : (t - inside) * rise);
  };
  const cuts = ends.map(({ t }) => {
    const z = ((t - curve.centre[c]) / spread - mean) / root;
    return Math.min(Math.max(z, -RANGE), RANGE);
  });
  const edges = [-RANGE, ...cuts, RANGE];
  const middle = back(mean);
  let first = 0;
  let second = 0;
  for (let part = 0; part < 3; part++) {
    const half = 0.5 * (edges[part + 1] - edges[part]);
    for (let k = 0; k < partNodes.length; k++) {
      const z = edges[part] + half * (1 + partNodes[k]);
      const x = back(mean + root * z) - middle;
      const mass = (partWeights[k] * half * Math.exp(-0.5 * z * z)) / Math.sqrt(2 * Math.PI);
      first += mass * x;
      second += mass * x * x;
    }
  }
  out[0] = middle + first;
  out[1] = Math.max(second - first * first, 0);
}

/** The most probable code of a categorical column and p (1 - p), from the chances of taking each step.
 *  `order` has the codes in the order of the steps; without it they are 0, 1, ... */
function codeFromSteps(taken, order) {
  let left = 1;
  let best = 0;
  let code = 0;
  for (let k = 0; k <= taken.length; k++) {
    const share = k < taken.length ? left * taken[k] : left;
    if (share > best) {
      best = share;
      code = k;
    }
    if (k < taken.length) left *= 1 - taken[k];
  }
  return { mean: order ? order[code] : code, variance: best * (1 - best) };
}

/** Moments of the shares of a vector of counts with a total of one, from those of the steps of its stick. */
function sharesFromSteps(mean, variance) {
  const shares = { mean: [], variance: [] };
  let left = 1;
  let squareLeft = 1;
  for (let k = 0; k <= mean.length; k++) {
    const last = k === mean.length;
    const first = left * (last ? 1 : mean[k]);
    const second = squareLeft * (last ? 1 : variance[k] + mean[k] ** 2);
    shares.mean.push(first);
    shares.variance.push(first - second + Math.max(second - first * first, 0));
    if (last) break;
    left *= 1 - mean[k];
    squareLeft *= variance[k] + (1 - mean[k]) ** 2;
  }
  return shares;
}
