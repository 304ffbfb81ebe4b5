// Small charts of the model: the learned kernel and the bound during the fit.

const CHART = { width: 330, height: 156, left: 42, right: 10, top: 10, bottom: 38 };

function drawModelCharts(app) {
  const { kernel, elbo } = app.payload;
  const theme = app.store.get("theme");
  const names = kernel.dims.map((dim) => `latent ${dim + 1}`);
  element("kernel").replaceChildren(
    lineChart({
      title: "Correlation of the function with itself at a distance along each latent dimension",
      x: kernel.distances,
      series: kernel.curves,
      colours: kernel.curves.map((_, i) => classColour(i, theme)),
      xName: "distance in the latent space",
    }),
  );
  const part = app.payload.decoder.affine.data ? ", without the linear part" : "";
  element("kernel-hint").textContent = `correlation${part}`;
  element("kernel-names").replaceChildren(
    ...names.map((name, i) => {
      const swatch = make("span", { className: "swatch" });
      swatch.style.background = classColour(i, theme);
      return make("span", { className: "key" }, swatch, name);
    }),
  );
  element("bound").replaceChildren(
    lineChart({
      title: "Evidence lower bound per entry at each sweep",
      x: elbo.map((_, i) => i + 1),
      series: [elbo],
      colours: [classColour(0, theme)],
      xName: "sweep",
    }),
  );
}

/** Lines over common x; missing values leave gaps. */
function lineChart({ title, x, series, colours, xName }) {
  const { width, height } = CHART;
  const [left, right] = finiteRange(x);
  const [bottom, top] = padded(finiteRange(series.flat()));
  const [wide, high] = [width - CHART.left - CHART.right, height - CHART.top - CHART.bottom];
  const across = (value) => CHART.left + ((value - left) / (right - left || 1)) * wide;
  const up = (value) => height - CHART.bottom - ((value - bottom) / (top - bottom)) * high;
  const size = `0 0 ${width} ${height}`;
  const chart = svg("svg", { viewBox: size, class: "chart", role: "img", "aria-label": title });
  const middle = { "text-anchor": "middle" };
  for (const value of ticks(bottom, top, 3)) {
    chart.append(
      svg("line", { x1: CHART.left, x2: width - CHART.right, y1: up(value), y2: up(value), class: "grid" }),
      svgText(CHART.left - 6, up(value) + 3.5, formatNumber(value), { class: "tick", "text-anchor": "end" }),
    );
  }
  for (const value of ticks(left, right, 5)) {
    chart.append(svgText(across(value), height - 22, formatNumber(value), { class: "tick", ...middle }));
  }
  chart.append(svgText((CHART.left + width) / 2, height - 5, xName, { class: "axis", ...middle }));
  series.forEach((values, i) => chart.append(linePath(values, x, across, up, colours[i])));
  return chart;
}

function linePath(values, x, across, up, colour) {
  if (values.length === 1) return svg("circle", { cx: across(x[0]), cy: up(values[0]), r: 3, fill: colour });
  let pen = "M";
  const steps = values.map((value, i) => {
    if (value === null) {
      pen = "M";
      return "";
    }
    const step = `${pen}${across(x[i]).toFixed(1)} ${up(value).toFixed(1)}`;
    pen = "L";
    return step;
  });
  return svg("path", { d: steps.join(""), stroke: colour, class: "curve" });
}

function padded([low, high]) {
  const room = 0.06 * (high - low || 1);
  return [low - room, high + room];
}
