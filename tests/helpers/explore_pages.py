"""Pages of the explorer, and their scripts run without a browser."""

import base64
import json
import shutil
import subprocess

import numpy as np
import pytest

from srflvm.explore.page import NUMERIC_SCRIPTS, _script

HARNESS = """
const input = JSON.parse(require("fs").readFileSync(0, "utf8"));
const decoder = new Decoder(input.decoder, input.n_latent, input.n_columns);
const answers = input.points.map((point) => {
  const { mean, std } = decoder.decode(point);
  const columns = Array.from(mean, (_, column) => decoder.decodeColumn(point, column));
  return { mean: [...mean], std: [...std], columns, uncertainty: decoder.uncertainty(point) };
});
process.stdout.write(JSON.stringify(answers));
"""


def payload_in(path):
    """Return the payload of a page."""
    text = path.read_text(encoding="utf-8")
    start = text.index('id="payload">') + len('id="payload">')
    return json.loads(text[start : text.index("</script>", start)])


def run_in_node(program, text=""):
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs Node.js to run the scripts of the page")
    source = _script(NUMERIC_SCRIPTS) + program
    return subprocess.run([node, "-e", source], input=text, capture_output=True, text=True, check=True).stdout


def decoded_by_scripts(payload, points):
    """Return arrays by name that the scripts of a page decode at latent points; NaN where there are none."""
    request = {
        "decoder": payload["decoder"],
        "n_latent": payload["n_latent"],
        "n_columns": len(payload["columns"]["names"]),
        "points": np.asarray(points).tolist(),
    }
    answers = json.loads(run_in_node(HARNESS, json.dumps(request)))
    return {name: np.array([answer[name] for answer in answers], float) for name in answers[0]}


def unpack_array(block):
    """Return the numbers of a block."""
    return np.frombuffer(base64.b64decode(block["data"]), np.dtype(block["type"]).newbyteorder("<"))


def unpack_codes(coded):
    """Return numbers from codes, by the rule in the docstring of `pack_codes`."""
    values = unpack_array(coded["codes"]).astype(float)
    values[values == np.iinfo(coded["codes"]["type"]).max] = np.nan
    return coded["low"] + coded["step"] * values
