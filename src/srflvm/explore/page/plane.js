// The latent plane: a canvas of points with a canvas of marks above it, and when they are drawn anew.

const SETTLE_MILLISECONDS = 140;
const FEW_ROWS = 5000;
const MANY_ROWS = 30000;

class Plane {
  constructor(app, frame, canvas, marks) {
    this.app = app;
    this.canvas = canvas;
    this.marks = marks;
    this.frame = frame;
    this.context = canvas.getContext("2d", { alpha: false, willReadFrequently: true });
    this.marksContext = marks.getContext("2d");
    this.camera = new Camera();
    this.points = new Points(app.rows.count);
    this.fog = new Fog((x, y) => app.decoder.uncertainty(app.fogPoint(x, y)), () => this.redraw());
    this.lasso = [];
    this.neighbours = [];
    this.moving = false;
    this.redraw = oncePerFrame(() => this.draw());
    this.remark = oncePerFrame(() => this.drawMarks());
    this._placeRows();
    this._listen();
    new ResizeObserver(() => this._resize()).observe(frame);
  }

  /** Draw everything, and remember how long it took. */
  draw() {
    const started = performance.now();
    const { camera } = this;
    const ratio = this._pixelRatio();
    const [width, height] = [Math.round(camera.width * ratio), Math.round(camera.height * ratio)];
    this._sizeCanvas(width, height);
    this._background(width, height, ratio);
    const surface = pixelOf(SURFACE[this.app.store.get("theme")]) | 0;
    const halo = this.app.rows.count <= FEW_ROWS ? surface : null;
    const radius = pointRadius(this.app.rows.count, camera.zoom);
    this.points.draw({ pixels: this.pixels, width, height }, camera, ratio, radius, halo);
    this.context.putImageData(this.image, 0, 0);
    this.drawMarks();
    this.drawMilliseconds = performance.now() - started;
  }

  drawMarks() {
    const { camera, marks } = this;
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [Math.round(camera.width * ratio), Math.round(camera.height * ratio)];
    if (marks.width !== width || marks.height !== height) Object.assign(marks, { width, height });
    drawOverlay(this.marksContext, camera, ratio, this.app.ink(), this._scene());
  }

  /** To be called after the camera has moved: the rest is drawn in full when it stands still. */
  moved() {
    this.moving = true;
    this.redraw();
    clearTimeout(this.settling);
    this.settling = setTimeout(() => this._settle(), SETTLE_MILLISECONDS);
  }

  /** Where a row is in the plane. */
  place(row) {
    return [this.xs[row], this.ys[row]];
  }

  nearestRow(x, y) {
    return nearestInPlane(this.xs, this.ys, x, y);
  }

  showRow(row) {
    this.camera.show(...this.place(row));
    this.moved();
  }

  _settle() {
    this.moving = false;
    this.redraw();
    this._updateFog();
  }

  _updateFog() {
    const { store } = this.app;
    if (store.get("fog")) this.fog.update(this.camera, store.get("theme"));
    else this.fog.forget();
  }

  _listen() {
    const { store } = this.app;
    store.on(["dims"], () => {
      this._placeRows();
      this.camera.fit(this.xs, this.ys);
      this._settle();
    });
    store.on(["painted", "selection", "emphasis"], ({ painted, selection, emphasis }) => {
      this.points.paint(painted.colours, painted.shapes, fadedRows(this.app.rows, selection, emphasis));
      this.redraw();
    });
    store.on(["fog", "theme", "held", "pinned"], () => this._updateFog());
    store.on(["fog", "theme"], () => this.redraw());
    store.on(["cursor", "pinned", "path", "found"], () => this.remark());
  }

  _placeRows() {
    const [across, up] = this.app.store.get("dims");
    this.xs = this.app.rows.coordinate(across);
    this.ys = this.app.rows.coordinate(up);
    this.points.place(this.xs, this.ys);
  }

  _resize() {
    const first = this.camera.width === 1;
    const zoom = this.camera.zoom;
    const centre = [...this.camera.centre];
    this.camera.resize(this.frame.clientWidth, this.frame.clientHeight);
    this.camera.fit(this.xs, this.ys);
    if (!first) {
      this.camera.zoomBy(zoom);
      this.camera.centre = centre;
    }
    this.draw();
    this._updateFog();
  }

  /** Very many points are drawn in fewer pixels while they move. */
  _pixelRatio() {
    const full = window.devicePixelRatio || 1;
    return this.moving && this.app.rows.count > MANY_ROWS ? Math.min(full, 1) : full;
  }

  _sizeCanvas(width, height) {
    if (this.image && this.image.width === width && this.image.height === height) return;
    Object.assign(this.canvas, { width, height });
    this.image = this.context.createImageData(width, height);
    this.pixels = new Int32Array(this.image.data.buffer);
  }

  _background(width, height, ratio) {
    const surface = SURFACE[this.app.store.get("theme")];
    if (!this.app.store.get("fog") || !this.fog.bounds) {
      this.pixels.fill(pixelOf(surface));
      return;
    }
    this.context.fillStyle = surface;
    this.context.fillRect(0, 0, width, height);
    this.fog.draw(this.context, this.camera, ratio);
    this.image = this.context.getImageData(0, 0, width, height);
    this.pixels = new Int32Array(this.image.data.buffer);
  }

  _scene() {
    const { store } = this.app;
    const [across, up] = store.get("dims");
    const found = store.get("found");
    return {
      names: [`latent ${across + 1}`, up === null ? null : `latent ${up + 1}`],
      lasso: this.lasso,
      path: store.get("path"),
      neighbours: this.neighbours.map((row) => this.place(row)),
      found: found === null ? null : this.place(found),
      cursor: store.get("cursor"),
      pinned: store.get("pinned"),
    };
  }
}

/** Which rows step back: those not selected, if any are, and those of classes that are not emphasised. */
function fadedRows(rows, selection, emphasis) {
  const faded = new Uint8Array(rows.count);
  if (selection.length) {
    faded.fill(1);
    for (const row of selection) faded[row] = 0;
  }
  if (emphasis.size) {
    for (let row = 0; row < rows.count; row++) if (!emphasis.has(rows.labels.codes[row])) faded[row] = 1;
  }
  return faded;
}
