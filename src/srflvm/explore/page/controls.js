// The controls around the plane.

function bindControls(app) {
  bindTools(app);
  bindColours(app);
  bindDimensions(app);
  bindView(app);
  bindTheme(app);
  bindHelp(app);
}

function bindTools(app) {
  const buttons = [...document.querySelectorAll("[data-tool]")];
  for (const button of buttons) {
    button.addEventListener("click", () => app.store.set({ tool: button.dataset.tool }));
  }
  app.store.on(["tool"], ({ tool }) => {
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.tool === tool));
    app.plane.marks.dataset.tool = tool;
  });
}

function bindColours(app) {
  const [choice, field, input] = [element("colour-by"), element("column-field"), element("column")];
  if (!app.rows.labels) choice.querySelector("[value=labels]").remove();
  choice.value = app.store.get("colourBy");
  element("column-names").append(...app.columns.names.map((name) => make("option", { value: name })));
  input.value = app.columns.names[app.store.get("column")];
  choice.addEventListener("change", () => app.store.set({ colourBy: choice.value, emphasis: new Set() }));
  input.addEventListener("focus", () => input.select());
  input.addEventListener("change", () => {
    const column = app.columns.names.indexOf(input.value.trim());
    input.setCustomValidity(column < 0 ? "There is no such column." : "");
    if (column >= 0) app.store.set({ column });
    else input.reportValidity();
  });
  app.store.on(["colourBy", "column"], ({ colourBy, column }) => {
    choice.value = colourBy;
    field.hidden = colourBy !== "column";
    input.value = app.columns.names[column];
  });
}

function bindDimensions(app) {
  const { nLatent } = app.rows;
  const [across, up] = [element("dim-across"), element("dim-up")];
  if (nLatent > 1) {
    const names = Array.from({ length: nLatent }, (_, q) => `latent ${q + 1}`);
    for (const select of [across, up]) {
      select.append(...names.map((name, value) => make("option", { value }, name)));
    }
    [across.value, up.value] = app.store.get("dims");
  }
  element("dims-field").hidden = element("held-field").hidden = nLatent < 3;
  const choose = (changed, other) => () => {
    const before = app.store.get("dims");
    if (changed.value === other.value) other.value = before[changed === across ? 0 : 1];
    app.store.set({ dims: [Number(across.value), Number(up.value)], path: null, pinned: false });
  };
  across.addEventListener("change", choose(across, up));
  up.addEventListener("change", choose(up, across));
  element("held").addEventListener("change", (event) => app.store.set({ held: event.target.value }));
}

function bindView(app) {
  const { camera } = app.plane;
  const act = (id, action) =>
    element(id).addEventListener("click", () => {
      action();
      app.plane.moved();
    });
  act("zoom-in", () => camera.zoomBy(1.4));
  act("zoom-out", () => camera.zoomBy(1 / 1.4));
  act("zoom-fit", () => camera.reset());
  element("fog").addEventListener("change", (event) => app.store.set({ fog: event.target.checked }));
  app.store.on(["fog"], ({ fog }) => (element("fog").checked = fog));
  element("png").addEventListener("click", async () => saveAs("latent-plane.png", await viewAsPng(app)));
}

/** The theme follows the system until the button is used. */
function bindTheme(app) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = false;
  const follow = () => chosen || app.store.set({ theme: system.matches ? "dark" : "light" });
  system.addEventListener("change", follow);
  element("theme").addEventListener("click", () => {
    chosen = true;
    app.store.set({ theme: app.store.get("theme") === "dark" ? "light" : "dark" });
  });
}

function bindHelp(app) {
  const dialog = element("help-text");
  element("help").addEventListener("click", () => dialog.showModal());
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, select, dialog");
    if (event.key !== "/" || typing) return;
    event.preventDefault();
    element("search").focus();
  });
  element("about").append(...app.notes().map((note) => make("li", {}, note)));
  for (const note of app.warnings()) {
    element("notices").append(make("p", { className: "notice" }, note));
  }
}
