// A decoded row as bars with error bars, for rows that are not images.

const MOST_BARS = 14;

class Profile {
  constructor(app, host) {
    this.app = app;
    this.bars = [];
    this.host = host;
    const shown = Math.min(MOST_BARS, app.columns.decoded.length);
    for (let i = 0; i < shown; i++) this.bars.push(makeBar(host));
    this.common = hasCommonScale(app.columns);
  }

  /** Draw {mean, std}: the columns chosen by `order`, each on its own range or all on a common one. */
  show({ mean, std }, order) {
    const { columns } = this.app;
    const chosen = chooseColumns(columns, mean, order).slice(0, this.bars.length);
    const whole = this.common ? commonRange(columns) : null;
    this.bars.forEach((bar, i) => {
      const column = chosen[i];
      const [low, high] = whole ?? columnRange(columns, column);
      setBar(bar, columns.names[column], mean[column], std[column], low, high, columns.average[column]);
    });
  }
}

function makeBar(host) {
  const parts = {
    name: make("span", { className: "bar-name" }),
    fill: make("span", { className: "bar-fill" }),
    error: make("span", { className: "bar-error" }),
    usual: make("span", { className: "bar-usual" }),
    value: make("span", { className: "bar-value" }),
  };
  const track = make("span", { className: "bar-track" }, parts.fill, parts.usual, parts.error);
  host.append(make("li", { className: "bar" }, parts.name, track, parts.value));
  return parts;
}

function setBar(bar, name, mean, std, low, high, average) {
  const share = (value) => 100 * Math.min(Math.max((value - low) / (high - low || 1), 0), 1);
  const base = share(Math.min(Math.max(0, low), high));
  const spread = Number.isFinite(std) ? std : high - low;
  setSpan(bar.fill, base, share(mean));
  setSpan(bar.error, share(mean - spread), share(mean + spread));
  bar.usual.style.left = `${share(average)}%`;
  bar.name.textContent = name;
  bar.name.title = name;
  bar.value.textContent = `${formatNumber(mean)} ± ${formatNumber(std)}`;
}

function setSpan(node, from, to) {
  node.style.left = `${Math.min(from, to)}%`;
  node.style.width = `${Math.abs(to - from)}%`;
}

/** Columns in an order: "unusual" by how far they are from their mean over the rows. */
function chooseColumns(columns, mean, order) {
  if (order === "data") return columns.decoded;
  const score = {
    unusual: (j) => Math.abs(mean[j] - columns.average[j]) / (columns.spread[j] || Infinity),
    largest: (j) => mean[j],
  }[order];
  return [...columns.decoded].sort((left, right) => score(right) - score(left));
}

/** The range of a column, with zero in it if that is near. */
function columnRange(columns, column) {
  const [low, high] = [columns.low[column], columns.high[column]];
  const near = high - low;
  if (low > 0 && low < near) return [0, high];
  return high < 0 && -high < near ? [low, 0] : [low, high];
}

function commonRange(columns) {
  const [low] = finiteRange(columns.decoded.map((j) => columns.low[j]));
  const [, high] = finiteRange(columns.decoded.map((j) => columns.high[j]));
  return [Math.min(low, 0), Math.max(high, 0)];
}

/** Whether bars on one scale would all be seen: no range less than a quarter of the widest. */
function hasCommonScale(columns) {
  const [low, high] = commonRange(columns);
  return columns.decoded.every((j) => columns.high[j] - columns.low[j] > (high - low) / 4);
}
