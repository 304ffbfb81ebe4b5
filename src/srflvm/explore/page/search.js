// Rows found by their id.

const MOST_RESULTS = 8;

class Search {
  constructor(app, input, list) {
    Object.assign(this, { app, input, list });
    input.addEventListener("input", () => this._show());
    input.addEventListener("focus", () => this._show());
    input.addEventListener("keydown", (event) => this._press(event));
    list.addEventListener("keydown", (event) => this._walk(event));
    document.addEventListener("pointerdown", (event) => {
      if (!event.target.closest(".search")) this._close();
    });
  }

  _show() {
    const text = this.input.value.trim();
    if (!text) return this._close();
    const { rows, total } = findRows(this.app.rows, text);
    const buttons = rows.map((row) => this._result(row));
    this.list.replaceChildren(...buttons);
    const hint = total ? `${formatCount(total)} rows match` : "No row has this id";
    if (!total || total > rows.length) this.list.append(make("li", { className: "hint" }, hint));
    this.list.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
  }

  _result(row) {
    const button = make("button", { type: "button" }, make("span", {}, this.app.rows.name(row)));
    const label = this.app.rows.label(row);
    if (label !== null) button.append(make("span", { className: "result-label" }, label));
    button.addEventListener("click", () => this._choose(row));
    return make("li", {}, button);
  }

  _choose(row) {
    this._close();
    this.app.findRow(row);
  }

  _press(event) {
    const first = this.list.querySelector("button");
    if (event.key === "Escape") this._close();
    if (event.key === "Enter" && first) first.click();
    if (event.key === "ArrowDown" && first) {
      event.preventDefault();
      first.focus();
    }
  }

  _walk(event) {
    const buttons = [...this.list.querySelectorAll("button")];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") this._close();
    if (!step) return;
    event.preventDefault();
    const next = buttons[buttons.indexOf(document.activeElement) + step];
    (next ?? this.input).focus();
  }

  _close() {
    this.list.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
  }
}

/** Rows whose id contains a text: equal ones first, then those that begin with it. */
function findRows(rows, text) {
  const wanted = text.toLowerCase();
  const ranked = [[], [], []];
  let total = 0;
  for (let row = 0; row < rows.count; row++) {
    const at = rows.name(row).toLowerCase().indexOf(wanted);
    if (at < 0) continue;
    total++;
    const rank = at > 0 ? 2 : rows.name(row).length === text.length ? 0 : 1;
    if (ranked[rank].length < MOST_RESULTS) ranked[rank].push(row);
  }
  return { rows: ranked.flat().slice(0, MOST_RESULTS), total };
}
