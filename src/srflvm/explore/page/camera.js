// Where the view is: latent coordinates to pixels of the page and back. The same scale on both axes.

const LARGEST_ZOOM = 200;
const SMALLEST_ZOOM = 0.4;

class Camera {
  constructor() {
    this.width = 1;
    this.height = 1;
    this.centre = [0, 0];
    this.scale = 1;
    this.fitted = { centre: [0, 0], scale: 1 };
  }

  resize(width, height) {
    this.width = Math.max(width, 1);
    this.height = Math.max(height, 1);
  }

  /** Show all points (xs, ys), with a margin. */
  fit(xs, ys) {
    const [left, right] = finiteRange(xs);
    const [bottom, top] = finiteRange(ys);
    const [across, up] = [right - left || 1, top - bottom || 1];
    const scale = 0.86 * Math.min(this.width / across, this.height / up);
    this.fitted = { centre: [(left + right) / 2, (bottom + top) / 2], scale };
    this.reset();
  }

  reset() {
    this.centre = [...this.fitted.centre];
    this.scale = this.fitted.scale;
  }

  get zoom() {
    return this.scale / this.fitted.scale;
  }

  toScreen(x, y) {
    return [
      this.width / 2 + (x - this.centre[0]) * this.scale,
      this.height / 2 - (y - this.centre[1]) * this.scale,
    ];
  }

  toPlane(across, down) {
    return [
      this.centre[0] + (across - this.width / 2) / this.scale,
      this.centre[1] - (down - this.height / 2) / this.scale,
    ];
  }

  pan(across, down) {
    this.centre[0] -= across / this.scale;
    this.centre[1] += down / this.scale;
  }

  /** Zoom by a factor around a place of the page, which stays where it is. */
  zoomBy(factor, across = this.width / 2, down = this.height / 2) {
    const before = this.toPlane(across, down);
    const zoom = Math.min(Math.max(this.zoom * factor, SMALLEST_ZOOM), LARGEST_ZOOM);
    this.scale = zoom * this.fitted.scale;
    const after = this.toPlane(across, down);
    this.centre[0] += before[0] - after[0];
    this.centre[1] += before[1] - after[1];
  }

  /** Move so that a point of the plane is in view, in the middle if it was not. */
  show(x, y) {
    const [across, down] = this.toScreen(x, y);
    const inside = across > 40 && across < this.width - 40 && down > 40 && down < this.height - 40;
    if (!inside) this.centre = [x, y];
  }

  /** Left, right, bottom and top of the view. */
  get bounds() {
    const [left, top] = this.toPlane(0, 0);
    const [right, bottom] = this.toPlane(this.width, this.height);
    return { left, right, bottom, top };
  }
}
