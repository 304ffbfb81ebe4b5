// Points drawn into the pixels of a canvas. A point is a stamp: for each of its pixels how much of it is
// covered, so that 100 000 points are a few million additions and need no graphics card.

const HALO_OPACITY = 0.86;
const FADED_OPACITY = 0.2;

class Points {
  constructor(count) {
    this.order = shuffled(count);
    this.x = new Float32Array(count);
    this.y = new Float32Array(count);
    this.shapes = new Uint8Array(count);
    this.colours = new Int32Array(count);
    this.faded = new Uint8Array(count);
    this.anyFaded = false;
    this.stamps = new Map();
  }

  /** Coordinates of all rows. Points are kept in the order in which they are drawn. */
  place(xs, ys) {
    this._permute(xs, this.x);
    this._permute(ys, this.y);
  }

  /** Pixels and shapes of all rows, and which ones step back. */
  paint(colours, shapes, faded) {
    this._permute(colours, this.colours);
    this._permute(shapes, this.shapes);
    this._permute(faded, this.faded);
    this.anyFaded = this.faded.includes(1);
  }

  /**
   * Draw into an image {pixels, width, height}, `ratio` of its pixels to one of the page. Faded points are
   * drawn first; the others have a halo in a colour, if one is given.
   */
  draw(image, camera, ratio, radius, halo) {
    const stamps = (size, opacity) => this._stamps(size * ratio, opacity, image.width);
    if (this.anyFaded) this._pass(image, camera, ratio, 1, stamps(radius, FADED_OPACITY));
    const around = halo === null ? null : stamps(radius + 1 / ratio, HALO_OPACITY);
    this._pass(image, camera, ratio, 0, stamps(radius, 1), around, halo);
  }

  _pass({ pixels, width, height }, camera, ratio, faded, stamps, around, halo) {
    const { x, y, shapes, colours } = this;
    const scale = camera.scale * ratio;
    const left = (camera.width / 2) * ratio - camera.centre[0] * scale;
    const top = (camera.height / 2) * ratio + camera.centre[1] * scale;
    const margin = (around ?? stamps)[0].reach + 1;
    for (let i = 0; i < x.length; i++) {
      if (this.faded[i] !== faded) continue;
      const across = Math.round(left + x[i] * scale);
      const down = Math.round(top - y[i] * scale);
      if (across < margin || across >= width - margin || down < margin || down >= height - margin) continue;
      const place = across + down * width;
      if (around) press(around[shapes[i]], halo, place, pixels);
      press(stamps[shapes[i]], colours[i], place, pixels);
    }
  }

  /** A stamp of each shape. */
  _stamps(radius, opacity, width) {
    const key = `${radius.toFixed(2)} ${opacity} ${width}`;
    if (this.stamps.size > 32) this.stamps.clear();
    if (!this.stamps.has(key)) {
      this.stamps.set(key, SHAPES.map((shape) => makeStamp(shape, radius, opacity, width)));
    }
    return this.stamps.get(key);
  }

  _permute(from, to) {
    for (let i = 0; i < to.length; i++) to[i] = from[this.order[i]];
  }
}

/** Blend a stamp in a colour over the pixels around a place. Two colour channels are blended at a time. */
function press({ offsets, cover }, colour, place, pixels) {
  const redBlue = colour & 0xff00ff;
  const green = colour & 0x00ff00;
  for (let k = 0; k < offsets.length; k++) {
    const at = place + offsets[k];
    const share = cover[k];
    if (share === 256) {
      pixels[at] = colour;
      continue;
    }
    const under = pixels[at];
    const rest = 256 - share;
    const outer = (Math.imul(redBlue, share) + Math.imul(under & 0xff00ff, rest)) >>> 8;
    const inner = (Math.imul(green, share) + Math.imul(under & 0x00ff00, rest)) >>> 8;
    pixels[at] = 0xff000000 | (outer & 0xff00ff) | (inner & 0x00ff00);
  }
}

/** Which pixels of an image of some width a shape covers, relative to its middle, and how much (of 256). */
function makeStamp(shape, radius, opacity, width) {
  const reach = Math.ceil(radius) + 1;
  const offsets = [];
  const cover = [];
  for (let down = -reach; down <= reach; down++) {
    for (let across = -reach; across <= reach; across++) {
      const inside = Math.min(Math.max(0.5 + radius - shapeDistance(shape, across, down), 0), 1);
      const share = Math.round(256 * opacity * inside);
      if (!share) continue;
      offsets.push(across + down * width);
      cover.push(share);
    }
  }
  return { reach, offsets: Int32Array.from(offsets), cover: Int32Array.from(cover) };
}

/** The size at which a shape around the origin reaches a place; shapes of a size have about the same area. */
function shapeDistance(shape, across, down) {
  if (shape === "square") return 1.13 * Math.max(Math.abs(across), Math.abs(down));
  if (shape === "diamond") return 0.8 * (Math.abs(across) + Math.abs(down));
  if (shape === "triangle") return Math.max(1.35 * down, 1.2 * Math.abs(across) - 0.65 * down);
  return Math.hypot(across, down);
}

/** A fixed random order, so that no class always covers another. */
function shuffled(count) {
  const order = Uint32Array.from({ length: count }, (_, i) => i);
  let seed = 12345;
  for (let i = count - 1; i > 0; i--) {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    const other = Math.floor((seed / 4294967296) * (i + 1));
    [order[i], order[other]] = [order[other], order[i]];
  }
  return order;
}

/** Radius of a point in pixels of the page: smaller for more rows, a little larger closer up. */
function pointRadius(count, zoom) {
  const far = Math.min(Math.max(9.5 * count ** -0.16, 1.3), 5);
  return far * Math.min(Math.max(zoom, 1) ** 0.3, 2.2);
}
