// Colours for classes and numbers, told apart by all common kinds of colour vision, in both themes.

const CLASS_COLOURS = {
  light: [
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9",
    "#cc79a7", "#882255", "#4b3fae", "#b3a02c", "#3f4650",
  ],
  dark: [
    "#4aa3e3", "#f2b134", "#2cc095", "#f07f45", "#9ad7f7",
    "#e79fc8", "#d0608f", "#9c8cf5", "#e8dd8a", "#d3d8e0",
  ],
};

const PLAIN_COLOUR = { light: "#2f6fb3", dark: "#6cb2f0" };
const MISSING_COLOUR = { light: "#b4bac4", dark: "#5d6675" };
const SURFACE = { light: "#ffffff", dark: "#171b22" };
const FOG = { light: "#8c96a8", dark: "#586274" };

// Viridis, of which each theme leaves out the end that its background would swallow.
const RAMP = [
  "#440154", "#472d7b", "#3b528b", "#2c728e",
  "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725",
];
const RAMP_PART = { light: [0, 0.93], dark: [0.22, 1] };

/** Pixels as canvases store them: opaque, red in the lowest byte. */
function pixel(red, green, blue) {
  return (0xff000000 | (blue << 16) | (green << 8) | red) >>> 0;
}

function pixelOf(hex) {
  return pixel(...channelsOf(hex));
}

function channelsOf(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

function hexOf(colour) {
  const bytes = [colour & 255, (colour >> 8) & 255, (colour >> 16) & 255];
  return "#" + bytes.map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The colour `share` of the way from one to another. */
function mixed(from, to, share) {
  const [start, end] = [channelsOf(from), channelsOf(to)];
  return pixel(...start.map((value, i) => Math.round(value + share * (end[i] - value))));
}

/** 256 colours for numbers from low to high. */
function rampColours(theme) {
  const [first, last] = RAMP_PART[theme];
  return Uint32Array.from({ length: 256 }, (_, i) => {
    const place = (first + (last - first) * (i / 255)) * (RAMP.length - 1);
    const below = Math.min(Math.floor(place), RAMP.length - 2);
    return mixed(RAMP[below], RAMP[below + 1], place - below);
  });
}

function classColour(code, theme) {
  const colours = CLASS_COLOURS[theme];
  return colours[code % colours.length];
}

/** Beyond as many classes as there are colours, shapes change: a number for each of `SHAPES`. */
function classShape(code) {
  return Math.floor(code / CLASS_COLOURS.light.length) % SHAPES.length;
}

const SHAPES = ["circle", "square", "diamond", "triangle"];

/** Colours of all rows for numbers, and the range they stand for; a few extreme ones do not stretch it. */
function coloursOfNumbers(values, theme) {
  const ramp = rampColours(theme);
  const [low, high] = robustRange(values);
  // of halves: the range of the largest numbers is no number
  const range = high / 2 - low / 2;
  const place = (value) => (range > 0 ? Math.round(255 * ((value / 2 - low / 2) / range)) : 0);
  const missing = pixelOf(MISSING_COLOUR[theme]);
  const colours = Uint32Array.from(values, (value) =>
    Number.isNaN(value) ? missing : ramp[Math.max(0, Math.min(255, place(value)))],
  );
  return { colours, low, high };
}

function robustRange(values) {
  const step = Math.max(1, Math.floor(values.length / 20000));
  const sample = [];
  for (let i = 0; i < values.length; i += step) if (Number.isFinite(values[i])) sample.push(values[i]);
  sample.sort((left, right) => left - right);
  if (!sample.length) return [0, 1];
  const at = (share) => sample[Math.round(share * (sample.length - 1))];
  const [low, high] = [at(0.01), at(0.99)];
  return high > low ? [low, high] : finiteRange(sample);
}
