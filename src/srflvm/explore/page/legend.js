// The legend: classes to emphasise by clicking, or the scale of numbers.

const MOST_LEGEND_CLASSES = 30;

function drawLegend(app) {
  const host = element("legend");
  const { painted, theme, fog } = app.store.values;
  const entries = [];
  if (painted.legend.kind === "classes") entries.push(...classEntries(app, theme));
  if (painted.legend.kind === "numbers") entries.push(numberScale(painted.legend, theme));
  replaceKeepingFocus(host, entries);
  host.hidden = !entries.length;
  element("fog-legend").hidden = !fog;
  element("fog-legend").replaceChildren(fogScale(theme));
}

function classEntries(app, theme) {
  const { names, codes } = app.rows.labels;
  const counts = new Uint32Array(NO_LABEL + 1);
  for (const code of codes) counts[code]++;
  const shown = names.slice(0, MOST_LEGEND_CLASSES);
  const entries = shown.map((name, code) => classButton(app, name, code, counts[code], theme));
  if (names.length > shown.length) {
    entries.push(make("p", { className: "hint" }, `and ${names.length - shown.length} more`));
  }
  if (counts[NO_LABEL]) entries.push(classButton(app, "no label", NO_LABEL, counts[NO_LABEL], theme));
  return entries;
}

function classButton(app, name, code, count, theme) {
  const emphasis = app.store.get("emphasis");
  const missing = code === NO_LABEL;
  const colour = missing ? MISSING_COLOUR[theme] : classColour(code, theme);
  const button = make(
    "button",
    {
      type: "button",
      className: "legend-class",
      title: "Click to emphasise",
      attributes: { "aria-pressed": String(emphasis.has(code)) },
    },
    swatch(colour, missing ? 0 : classShape(code)),
    make("span", { className: "legend-name" }, name),
    make("span", { className: "legend-count" }, formatCount(count)),
  );
  button.addEventListener("click", () => {
    const changed = new Set(emphasis);
    if (!changed.delete(code)) changed.add(code);
    app.store.set({ emphasis: changed });
  });
  return button;
}

function swatch(colour, shape) {
  const outline = {
    circle: svg("circle", { cx: 6, cy: 6, r: 4.6 }),
    square: svg("rect", { x: 2, y: 2, width: 8, height: 8 }),
    diamond: svg("path", { d: "M6 0.6L11.4 6L6 11.4L0.6 6Z" }),
    triangle: svg("path", { d: "M6 1.4L11 10.2H1Z" }),
  }[SHAPES[shape]];
  const attributes = { viewBox: "0 0 12 12", class: "legend-swatch", "aria-hidden": "true" };
  return svg("svg", { ...attributes, fill: colour }, outline);
}

function numberScale({ caption, low, high }, theme) {
  const ramp = rampColours(theme);
  const stops = Array.from({ length: 9 }, (_, i) => hexOf(ramp[Math.round((i / 8) * 255)]));
  return scale(caption, stops, formatNumber(low), formatNumber(high));
}

function fogScale(theme) {
  return scale("function variance, share of the prior", [SURFACE[theme], FOG[theme]], "0 %", "100 %");
}

function scale(caption, stops, low, high) {
  const strip = make("div", { className: "scale-strip" });
  strip.style.background = `linear-gradient(to right, ${stops.join(", ")})`;
  const ends = make("div", { className: "scale-ends" }, make("span", {}, low), make("span", {}, high));
  const above = make("div", { className: "scale-caption" }, caption);
  return make("div", { className: "scale" }, above, strip, ends);
}
