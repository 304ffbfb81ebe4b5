"""Pages of the explorer for tests, and what their scripts make of them without a browser."""

import json
import shutil
import subprocess

import numpy as np
import pytest

from srflvm.explore.page import NUMERIC_SCRIPTS, script

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
    """What a page ships."""
    text = path.read_text(encoding="utf-8")
    start = text.index('id="payload">') + len('id="payload">')
    return json.loads(text[start : text.index("</script>", start)])


def run_in_node(program, text=""):
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs Node.js to run the scripts of the page")
    source = script(NUMERIC_SCRIPTS) + program
    return subprocess.run([node, "-e", source], input=text, capture_output=True, text=True, check=True).stdout


def decoded_by_scripts(payload, points):
    """Arrays by name of what the scripts of a page decode at latent points; NaN where there is nothing."""
    request = {
        "decoder": payload["decoder"],
        "n_latent": payload["n_latent"],
        "n_columns": len(payload["columns"]["names"]),
        "points": np.asarray(points).tolist(),
    }
    answers = json.loads(run_in_node(HARNESS, json.dumps(request)))
    return {name: np.array([answer[name] for answer in answers], float) for name in answers[0]}
