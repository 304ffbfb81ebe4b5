// Elements made from descriptions. Text is always set as text, never as HTML.

function element(id) {
  return document.getElementById(id);
}

/** A new element with properties, attributes (in `attributes`) and children. */
function make(tag, { attributes = {}, ...properties } = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** A new SVG element with attributes and children. */
function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function svgText(x, y, text, attributes = {}) {
  const node = svg("text", { x, y, ...attributes });
  node.textContent = text;
  return node;
}

/** New children in place of old ones; the button at the place of the focused one is focused. */
function replaceKeepingFocus(host, children) {
  const place = [...host.querySelectorAll("button")].indexOf(document.activeElement);
  host.replaceChildren(...children);
  if (place >= 0) host.querySelectorAll("button")[place]?.focus();
}

/** Let a browser save some content under a name. */
function saveAs(name, blob) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
