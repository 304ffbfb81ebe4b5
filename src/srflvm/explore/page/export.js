// What leaves the page: selected rows as CSV, the view as PNG.

/** Rows as text: id, label, latents, and the data that are in the page. */
function csvOfRows(app, selection) {
  const { rows, columns } = app;
  const latentNames = Array.from({ length: rows.nLatent }, (_, q) => `latent_${q + 1}`);
  const dataNames = rows.dataColumns.map((column) => columns.names[column]);
  const header = ["id", ...(rows.labels ? ["label"] : []), ...latentNames, ...dataNames];
  const lines = Array.from(selection, (row) => [
    rows.name(row),
    ...(rows.labels ? [plainLabel(rows.labels, row)] : []),
    ...Array.from(rows.latent(row), plainNumber),
    ...rows.dataColumns.map((column) => plainNumber(rows.data(column)[row])),
  ]);
  return [header, ...lines].map((line) => line.map(quoted).join(",")).join("\r\n") + "\r\n";
}

function plainLabel(labels, row) {
  if (labels.kind === "numbers") return plainNumber(labels.values[row]);
  return labels.codes[row] === NO_LABEL ? "" : labels.names[labels.codes[row]];
}

function plainNumber(value) {
  return Number.isNaN(value) ? "" : String(Number(value.toPrecision(7)));
}

function quoted(text) {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** The plane as it is seen, with the title above it. */
function viewAsPng(app) {
  const { canvas, marks, camera } = app.plane;
  const ratio = marks.width / camera.width;
  const top = 44;
  const ink = app.ink();
  const sheet = make("canvas", { width: marks.width, height: marks.height + Math.round(top * ratio) });
  const context = sheet.getContext("2d");
  context.fillStyle = ink.surface;
  context.fillRect(0, 0, sheet.width, sheet.height);
  context.drawImage(canvas, 0, top * ratio, marks.width, marks.height);
  context.drawImage(marks, 0, top * ratio);
  context.scale(ratio, ratio);
  context.fillStyle = ink.strong;
  context.font = "600 16px system-ui, sans-serif";
  context.fillText(app.payload.title, 14, 28, camera.width - 28);
  drawLegendText(context, app, top + 14, camera.width - 14, ink);
  return new Promise((resolve) => sheet.toBlob(resolve, "image/png"));
}

function drawLegendText(context, app, top, right, ink) {
  const { painted, theme } = app.store.values;
  const { legend } = painted;
  context.font = "12px system-ui, sans-serif";
  context.textAlign = "right";
  if (legend.kind === "numbers") {
    context.fillStyle = ink.soft;
    const range = `${formatNumber(legend.low)} to ${formatNumber(legend.high)}`;
    context.fillText(`${legend.caption}: ${range}`, right, top + 8);
  }
  if (legend.kind !== "classes") return;
  app.rows.labels.names.slice(0, MOST_LEGEND_CLASSES).forEach((name, code) => {
    const y = top + 8 + 17 * code;
    dot(context, [right - 5, y - 4], 4.5, classColour(code, theme));
    context.fillStyle = ink.strong;
    context.fillText(name, right - 16, y);
  });
}
