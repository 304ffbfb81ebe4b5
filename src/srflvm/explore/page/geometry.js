// Distances and polygons in the plane and in the latent space.

/** The k rows nearest to a point in all latent dimensions: [{row, distance}], nearest first. */
function nearestRows(latents, nLatent, point, k) {
  const found = [];
  let worst = Infinity;
  for (let row = 0, at = 0; at < latents.length; row++, at += nLatent) {
    let square = 0;
    for (let q = 0; q < nLatent; q++) square += (latents[at + q] - point[q]) ** 2;
    if (square >= worst) continue;
    found.push({ row, distance: square });
    found.sort((left, right) => left.distance - right.distance);
    if (found.length > k) found.pop();
    if (found.length === k) worst = found[k - 1].distance;
  }
  return found.map(({ row, distance }) => ({ row, distance: Math.sqrt(distance) }));
}

/** The index of the nearest of points (xs, ys), and its distance. */
function nearestInPlane(xs, ys, x, y) {
  let best = -1;
  let smallest = Infinity;
  for (let i = 0; i < xs.length; i++) {
    const square = (xs[i] - x) ** 2 + (ys[i] - y) ** 2;
    if (square < smallest) {
      smallest = square;
      best = i;
    }
  }
  return { row: best, distance: Math.sqrt(smallest) };
}

/** The indices of points (xs, ys) inside a polygon [[x, y], ...] by the even-odd rule. */
function insidePolygon(xs, ys, polygon) {
  const [left, right] = finiteRange(polygon.map((corner) => corner[0]));
  const [bottom, top] = finiteRange(polygon.map((corner) => corner[1]));
  const found = [];
  for (let i = 0; i < xs.length; i++) {
    if (xs[i] < left || xs[i] > right || ys[i] < bottom || ys[i] > top) continue;
    if (isInside(xs[i], ys[i], polygon)) found.push(i);
  }
  return found;
}

function isInside(x, y, polygon) {
  let inside = false;
  for (let i = 0, j = polygon.length - 1; i < polygon.length; j = i++) {
    const [xi, yi] = polygon[i];
    const [xj, yj] = polygon[j];
    if (yi > y !== yj > y && x < ((xj - xi) * (y - yi)) / (yj - yi) + xi) inside = !inside;
  }
  return inside;
}
