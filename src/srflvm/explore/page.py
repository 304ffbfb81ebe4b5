"""HTML of a page: template, style, scripts and payload in one text that refers to nothing outside of it."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

# Mathematics without a document, which Node can run as well.
NUMERIC_SCRIPTS = ("numbers.js", "links.js", "decoder.js", "geometry.js")

# In the order in which they use each other.
SCRIPTS = (
    *NUMERIC_SCRIPTS,
    "rows.js",
    "store.js",
    "colours.js",
    "camera.js",
    "points.js",
    "fog.js",
    "overlay.js",
    "plane.js",
    "pointer.js",
    "keyboard.js",
    "elements.js",
    "profile.js",
    "picture.js",
    "along.js",
    "charts.js",
    "legend.js",
    "colouring.js",
    "search.js",
    "export.js",
    "controls.js",
    "cards.js",
    "main.js",
)

# Characters that end a script or begin a comment in HTML.
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def assemble(payload: dict[str, Any]) -> bytes:
    """Return the HTML of a page, which states its own size."""
    parts = {
        "TITLE": html.escape(payload["title"]),
        "STYLE": _read("style.css"),
        "SCRIPT": '(() => {\n"use strict";\n' + _script(SCRIPTS) + "})();",
        "DATA": _json_for_html(payload),
        "SIZE": "",
    }
    size = len(_filled(parts).encode())
    parts["SIZE"] = f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"
    return _filled(parts).encode()


def _script(names: Sequence[str]) -> str:
    """Return scripts one after the other."""
    return "\n".join(_read(name) for name in names)


def _filled(parts: dict[str, str]) -> str:
    """Fill the template: each part goes to the place of its name between pairs of percent signs."""
    pieces = _read("template.html").split("%%")
    pieces[1::2] = [parts[name] for name in pieces[1::2]]
    return "".join(pieces)


def _read(name: str) -> str:
    return (files("srflvm.explore") / "page" / name).read_text(encoding="utf-8")


def _json_for_html(payload: dict[str, Any]) -> str:
    text = json.dumps(payload, allow_nan=False, separators=(",", ":"))
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    return text
