// Arrays from base64 text, and numbers as text.

const ARRAY_TYPES = {
  float64: Float64Array,
  float32: Float32Array,
  int16: Int16Array,
  uint16: Uint16Array,
  uint8: Uint8Array,
};

/** A typed array from a block {type, data} of little-endian numbers. */
function readBlock(block) {
  const text = atob(block.data);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return new ARRAY_TYPES[block.type](bytes.buffer);
}

/** Numbers from {low, step, codes}; the largest code stands for a missing one. */
function readCodes({ low, step, codes }) {
  const whole = readBlock(codes);
  const missing = codes.type === "uint8" ? 255 : 65535;
  return Float32Array.from(whole, (code) => (code === missing ? NaN : low + step * code));
}

/** Smallest and largest finite number, or [0, 1] if there is none. */
function finiteRange(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (!Number.isFinite(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : [0, 1];
}

/** A number with about three digits, as people write it. */
function formatNumber(value) {
  if (value === null || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(1).replace("-", "−");
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  return String(Number(value.toFixed(digits))).replace("-", "−");
}

/** A whole number with thin spaces between thousands. */
function formatCount(value) {
  return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
}

/** Round numbers, about `count` of them, between two limits. */
function ticks(low, high, count) {
  const rough = (high - low) / Math.max(count, 1);
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const first = Math.ceil(low / step - 1e-9);
  const found = [];
  for (let k = first; k * step <= high + 1e-9 * step; k++) found.push(Number((k * step).toPrecision(12)));
  return found;
}
