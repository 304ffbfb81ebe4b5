// What the user has chosen, and who wants to know when it changes.

class Store {
  constructor(values) {
    this.values = values;
    this.listeners = [];
  }

  get(name) {
    return this.values[name];
  }

  /** Change some values and call each listener to any of them once. */
  set(changes) {
    const changed = Object.keys(changes).filter((name) => this.values[name] !== changes[name]);
    Object.assign(this.values, changes);
    for (const { names, listener } of this.listeners) {
      if (names.some((name) => changed.includes(name))) listener(this.values);
    }
  }

  /** Call `listener` after every change of one of the names. */
  on(names, listener) {
    this.listeners.push({ names, listener });
  }
}

/** Calls in the same frame become one, made when the frame is drawn. */
function oncePerFrame(action) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      action();
    });
  };
}

const SLICE_MILLISECONDS = 12;

/**
 * Do `step(i)` for i < count, a slice of time in every frame. Resolves to false if `isStale()` turns true.
 * `progress` is told the share that is done after every slice.
 */
async function inSlices(count, step, isStale, progress = () => {}) {
  let index = 0;
  while (index < count) {
    const end = performance.now() + SLICE_MILLISECONDS;
    while (index < count && performance.now() < end) {
      for (let some = 0; some < 8 && index < count; some++) step(index++);
    }
    progress(index / count);
    if (index < count) await new Promise(requestAnimationFrame);
    if (isStale()) return false;
  }
  return true;
}
