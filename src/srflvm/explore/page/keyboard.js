// The plane by keyboard: arrows pan, shift and arrows move the cursor, letters do the rest.

const PAN_PIXELS = 48;
const CURSOR_PIXELS = 8;
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

class KeyboardTools {
  constructor(app, plane) {
    this.app = app;
    this.plane = plane;
    plane.marks.addEventListener("keydown", (event) => this._press(event));
  }

  _press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const arrow = ARROWS[event.key];
    const action = arrow ? () => this._arrow(arrow, event.shiftKey) : this._actions()[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  _actions() {
    const { camera } = this.plane;
    const zoom = (factor) => () => this._moveCamera(() => camera.zoomBy(factor));
    return {
      "+": zoom(1.25),
      "=": zoom(1.25),
      "-": zoom(0.8),
      0: () => this._moveCamera(() => camera.reset()),
      Enter: () => this._pin(),
      " ": () => this._toggleNearest(),
      p: () => this._path(),
      m: () => this.app.store.set({ fog: !this.app.store.get("fog") }),
      Escape: () => this.app.clearMarks(),
    };
  }

  _moveCamera(change) {
    change();
    this.plane.moved();
  }

  _arrow([across, down], shifted) {
    if (shifted) this._moveCursor(CURSOR_PIXELS * across, CURSOR_PIXELS * down);
    else this._moveCamera(() => this.plane.camera.pan(-PAN_PIXELS * across, -PAN_PIXELS * down));
  }

  /** The cursor where it is in view, else the middle of the view. */
  _cursor() {
    const { camera } = this.plane;
    const cursor = this.app.store.get("cursor");
    const place = cursor ? camera.toScreen(...cursor) : [-1, -1];
    const visible = place[0] >= 0 && place[0] <= camera.width && place[1] >= 0 && place[1] <= camera.height;
    return visible ? place : [camera.width / 2, camera.height / 2];
  }

  _moveCursor(across, down) {
    const [x, y] = this._cursor();
    this.app.store.set({ cursor: this.plane.camera.toPlane(x + across, y + down), found: null });
    this.app.announceCursor();
  }

  _pin() {
    const { store } = this.app;
    const cursor = this.plane.camera.toPlane(...this._cursor());
    store.set({ cursor, pinned: !store.get("pinned") });
    this.app.announce(store.get("pinned") ? "Pinned." : "No longer pinned.");
  }

  _toggleNearest() {
    const { row } = this.plane.nearestRow(...this.plane.camera.toPlane(...this._cursor()));
    const selection = new Set(this.app.store.get("selection"));
    if (!selection.delete(row)) selection.add(row);
    this.app.select(Int32Array.from(selection));
  }

  /** The first press sets the start of a path, the second its end. */
  _path() {
    const here = this.plane.camera.toPlane(...this._cursor());
    if (this.start) this.app.store.set({ path: [this.start, here] });
    this.app.announce(this.start ? "Path decoded." : "Path starts here. Move the cursor and press p again.");
    this.start = this.start ? null : here;
  }
}
