// Points drawn into the pixels of a canvas. A point is a stamp: for each of its pixels how much of it is
// covered, so that 100 000 points are a few million additions and need no graphics card.

class Points {
  constructor(count) {
    this.order = shuffled(count);
    this.x = new Float32Array(count);
    this.y = new Float32Array(count);
    this.shapes = new Uint8Array(count);
    this.colours = new Uint32Array(count);
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

  /** Draw into opaque pixels, `ratio` of them to one of the page. Faded points are drawn first. */
  draw(pixels, width, height, camera, ratio, radius, halo) {
    const target = { pixels, width, height, halo };
    if (this.anyFaded) this._pass(target, camera, ratio, radius, 1, 0.16);
    this._pass(target, camera, ratio, radius, 0, 1);
  }

  _pass(target, camera, ratio, radius, faded, opacity) {
    const { x, y, shapes, colours } = this;
    const scale = camera.scale * ratio;
    const left = (camera.width / 2) * ratio - camera.centre[0] * scale;
    const top = (camera.height / 2) * ratio + camera.centre[1] * scale;
    const halo = target.halo && !faded;
    const stamps = SHAPES.map((_, shape) => this._stamp(shape, radius * ratio, opacity, halo));
    const margin = stamps[0].reach + 1;
    const [right, bottom] = [target.width - margin, target.height - margin];
    for (let i = 0; i < x.length; i++) {
      if (this.faded[i] !== faded) continue;
      const across = Math.round(left + x[i] * scale);
      const down = Math.round(top - y[i] * scale);
      if (across < margin || across >= right || down < margin || down >= bottom) continue;
      press(stamps[shapes[i]], colours[i], across + down * target.width, target);
    }
  }

  /** Pixels of a shape: how far across and down they are, and how much of them it covers (0 to 256). */
  _stamp(shape, radius, opacity, halo) {
    const key = `${shape} ${radius.toFixed(2)} ${opacity} ${halo}`;
    if (!this.stamps.has(key)) {
      if (this.stamps.size > 64) this.stamps.clear();
      this.stamps.set(key, makeStamp(SHAPES[shape], radius, opacity, halo ? 1 : 0));
    }
    return this.stamps.get(key);
  }

  _permute(from, to) {
    for (let i = 0; i < to.length; i++) to[i] = from[this.order[i]];
  }
}

/** Blend a stamp in a colour over the pixels around a place. Two colour channels are blended at a time. */
function press(stamp, colour, place, { pixels, width, halo }) {
  const redBlue = colour & 0xff00ff;
  const green = colour & 0x00ff00;
  const haloRedBlue = halo & 0xff00ff;
  const haloGreen = halo & 0x00ff00;
  for (let k = 0; k < stamp.cover.length; k++) {
    const at = place + stamp.across[k] + stamp.down[k] * width;
    let under = pixels[at];
    const edge = stamp.edge[k];
    if (edge) {
      under = blend(haloRedBlue, haloGreen, edge, under);
    }
    const cover = stamp.cover[k];
    pixels[at] = cover === 256 ? colour : blend(redBlue, green, cover, under);
  }
}

function blend(redBlue, green, cover, under) {
  const rest = 256 - cover;
  const outer = (Math.imul(redBlue, cover) + Math.imul(under & 0xff00ff, rest)) >>> 8;
  const inner = (Math.imul(green, cover) + Math.imul(under & 0x00ff00, rest)) >>> 8;
  return 0xff000000 | (outer & 0xff00ff) | (inner & 0x00ff00);
}

function makeStamp(shape, radius, opacity, haloWidth) {
  const reach = Math.ceil(radius + haloWidth) + 1;
  const stamp = { reach, across: [], down: [], cover: [], edge: [] };
  for (let down = -reach; down <= reach; down++) {
    for (let across = -reach; across <= reach; across++) {
      const inside = (size) => Math.min(Math.max(0.5 + size - shapeDistance(shape, across, down), 0), 1);
      const cover = Math.round(256 * opacity * inside(radius));
      const edge = haloWidth ? Math.round(220 * inside(radius + haloWidth)) : 0;
      if (!cover && !edge) continue;
      for (const [name, value] of Object.entries({ across, down, cover, edge })) stamp[name].push(value);
    }
  }
  return { ...stamp, across: Int16Array.from(stamp.across), down: Int16Array.from(stamp.down),
    cover: Uint16Array.from(stamp.cover), edge: Uint16Array.from(stamp.edge) };
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
