// What is drawn over the points: axes, the cursor, the lasso, the path, the row that was found.

function drawOverlay(context, camera, ratio, ink, scene) {
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, camera.width, camera.height);
  drawAxes(context, camera, ink, scene.names);
  if (scene.lasso.length > 1) drawLasso(context, camera, ink, scene.lasso);
  if (scene.path) drawPath(context, camera, ink, scene.path);
  for (const [x, y] of scene.neighbours) ring(context, camera.toScreen(x, y), 6, ink.soft, 1.25);
  if (scene.found) {
    ring(context, camera.toScreen(...scene.found), 9, ink.surface, 5);
    ring(context, camera.toScreen(...scene.found), 9, ink.accent, 2.5);
  }
  if (scene.cursor) drawCursor(context, camera.toScreen(...scene.cursor), ink, scene.pinned);
}

function drawAxes(context, camera, ink, [across, up]) {
  const { left, right, bottom, top } = camera.bounds;
  context.font = "11px system-ui, sans-serif";
  context.fillStyle = ink.faint;
  context.strokeStyle = ink.line;
  context.lineWidth = 1;
  context.textAlign = "center";
  context.textBaseline = "alphabetic";
  for (const value of ticks(left, right, camera.width / 110)) {
    const x = Math.round(camera.toScreen(value, 0)[0]) + 0.5;
    if (x < 24 || x > camera.width - 24) continue;
    line(context, [x, camera.height - 22], [x, camera.height - 17]);
    context.fillText(formatNumber(value), x, camera.height - 6);
  }
  context.textAlign = "left";
  context.textBaseline = "middle";
  if (up) {
    for (const value of ticks(bottom, top, camera.height / 90)) {
      const y = Math.round(camera.toScreen(0, value)[1]) + 0.5;
      if (y < 40 || y > camera.height - 34) continue;
      line(context, [0, y], [5, y]);
      context.fillText(formatNumber(value), 9, y);
    }
  }
  drawAxisNames(context, camera, ink, across, up);
}

function drawAxisNames(context, camera, ink, across, up) {
  context.font = "600 11.5px system-ui, sans-serif";
  context.fillStyle = ink.soft;
  context.textBaseline = "alphabetic";
  context.textAlign = "right";
  context.fillText(`${across} →`, camera.width - 12, camera.height - 28);
  context.textAlign = "left";
  context.fillText(up ? `↑ ${up}` : "height has no meaning", 10, 20);
}

function drawLasso(context, camera, ink, corners) {
  context.beginPath();
  corners.forEach(([x, y], i) => context[i ? "lineTo" : "moveTo"](...camera.toScreen(x, y)));
  context.closePath();
  context.fillStyle = ink.wash;
  context.fill();
  context.strokeStyle = ink.accent;
  context.lineWidth = 1.5;
  context.setLineDash([5, 4]);
  context.stroke();
  context.setLineDash([]);
}

function drawPath(context, camera, ink, [start, end]) {
  const [from, to] = [camera.toScreen(...start), camera.toScreen(...end)];
  for (const [colour, width] of [[ink.surface, 6], [ink.accent, 2.5]]) {
    context.strokeStyle = colour;
    context.lineWidth = width;
    line(context, from, to);
    for (const place of [from, to]) ring(context, place, 5, colour, width / 1.5);
  }
  for (let k = 1; k < PATH_STEPS - 1; k++) {
    const share = k / (PATH_STEPS - 1);
    dot(context, from.map((value, i) => value + share * (to[i] - value)), 2.5, ink.accent);
  }
}

function drawCursor(context, [x, y], ink, pinned) {
  for (const [colour, width] of [[ink.surface, 4], [pinned ? ink.accent : ink.strong, 1.5]]) {
    context.strokeStyle = colour;
    context.lineWidth = width;
    for (const [across, down] of [[1, 0], [-1, 0], [0, 1], [0, -1]]) {
      line(context, [x + 5 * across, y + 5 * down], [x + 13 * across, y + 13 * down]);
    }
  }
  if (pinned) dot(context, [x, y], 3, ink.accent);
}

function line(context, from, to) {
  context.beginPath();
  context.moveTo(...from);
  context.lineTo(...to);
  context.stroke();
}

function ring(context, [x, y], radius, colour, width) {
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.stroke();
}

function dot(context, [x, y], radius, colour) {
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fillStyle = colour;
  context.fill();
}
