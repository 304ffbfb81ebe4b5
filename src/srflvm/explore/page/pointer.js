// Mouse, pen and touch on the plane: hovering decodes; dragging pans, draws a lasso or a path; clicking pins.

const CLICK_PIXELS = 4;
const SNAP_PIXELS = 10;
const WHEEL_STEP = 0.0016;

class PointerTools {
  constructor(app, plane) {
    this.app = app;
    this.plane = plane;
    this.down = new Map();
    const { marks } = plane;
    const on = (name, handler) => marks.addEventListener(name, handler, { passive: false });
    on("pointerdown", (event) => this._press(event));
    on("pointermove", (event) => this._move(event));
    on("pointerup", (event) => this._release(event));
    on("pointercancel", (event) => this._cancel(event));
    on("wheel", (event) => this._wheel(event));
    on("dblclick", (event) => this._zoomIn(event));
  }

  _at(event) {
    const box = this.plane.marks.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  _press(event) {
    if (event.button !== 0) return;
    const place = this._at(event);
    this.plane.marks.setPointerCapture(event.pointerId);
    this.down.set(event.pointerId, { first: place, last: place });
    this.tool = event.shiftKey ? "lasso" : this.app.store.get("tool");
    const here = this.plane.camera.toPlane(...place);
    if (this.tool === "lasso") this.plane.lasso = [here];
    if (this.tool === "path") this.start = here;
  }

  _move(event) {
    const place = this._at(event);
    const mine = this.down.get(event.pointerId);
    if (!mine) {
      if (!this.app.store.get("pinned")) this.app.store.set({ cursor: this.plane.camera.toPlane(...place) });
      return;
    }
    if (this.down.size === 2) this._pinch(event.pointerId, place);
    else this._drag(mine, place);
    mine.last = place;
  }

  _drag(mine, place) {
    const { camera } = this.plane;
    const here = camera.toPlane(...place);
    if (this.tool === "lasso") {
      this.plane.lasso.push(here);
      this.plane.remark();
    } else if (this.tool === "path") {
      if (travelled(mine, place) > CLICK_PIXELS) this.app.store.set({ path: [this.start, here] });
    } else {
      camera.pan(place[0] - mine.last[0], place[1] - mine.last[1]);
      this.plane.moved();
    }
  }

  _pinch(moved, place) {
    const [other] = [...this.down].filter(([id]) => id !== moved).map(([, pointer]) => pointer.last);
    const mine = this.down.get(moved).last;
    const before = Math.hypot(mine[0] - other[0], mine[1] - other[1]);
    const after = Math.hypot(place[0] - other[0], place[1] - other[1]);
    this.plane.camera.zoomBy(after / Math.max(before, 1), ...other);
    this.plane.moved();
  }

  _release(event) {
    const mine = this.down.get(event.pointerId);
    this.down.delete(event.pointerId);
    if (!mine) return;
    const place = this._at(event);
    if (this.tool === "lasso" && this.plane.lasso.length > 2) this._select();
    else if (travelled(mine, place) <= CLICK_PIXELS) this._click(place);
    this.plane.lasso = [];
    this.plane.remark();
  }

  _cancel(event) {
    this.down.delete(event.pointerId);
    this.plane.lasso = [];
  }

  _select() {
    const rows = insidePolygon(this.plane.xs, this.plane.ys, this.plane.lasso);
    this.app.select(Int32Array.from(rows));
  }

  /** Pin the place, or the row that is there; a click on the pin takes it out. */
  _click(place) {
    const { store } = this.app;
    const here = this.plane.camera.toPlane(...place);
    const pinned = store.get("pinned") && store.get("cursor");
    if (pinned && distanceOnScreen(this.plane.camera, pinned, place) < SNAP_PIXELS) {
      store.set({ pinned: false, found: null });
      return;
    }
    const nearest = this.plane.nearestRow(...here);
    const close = nearest.distance * this.plane.camera.scale < SNAP_PIXELS;
    store.set({
      cursor: close ? this.plane.place(nearest.row) : here,
      pinned: true,
      found: close ? nearest.row : null,
    });
  }

  _wheel(event) {
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 16 : 1;
    this.plane.camera.zoomBy(Math.exp(-WHEEL_STEP * lines * event.deltaY), ...this._at(event));
    this.plane.moved();
  }

  _zoomIn(event) {
    this.plane.camera.zoomBy(2, ...this._at(event));
    this.plane.moved();
  }
}

function travelled({ first }, place) {
  return Math.hypot(place[0] - first[0], place[1] - first[1]);
}

function distanceOnScreen(camera, [x, y], place) {
  const [across, down] = camera.toScreen(x, y);
  return Math.hypot(across - place[0], down - place[1]);
}
