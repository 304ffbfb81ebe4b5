import io
import sys

import matplotlib.image
import numpy as np
import pytest
from rich.console import Console
from sklearn.datasets import load_digits
from typer.testing import CliRunner

import srflvm
from srflvm.cli import app
from srflvm.cli.progress_bar import FitBar

N_ROWS, N_SWEEPS = 120, 2
MODEL_FILE, FIGURE_FILE, REPORT_FILE = "model.srflvm", "digits.png", "report.md"


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def assert_one_line_error(result, code, message):
    assert result.exit_code == code
    (line,) = result.output.splitlines()
    assert line.startswith("Error: ")
    assert message in line


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    return tmp_path_factory.mktemp("demo") / "new" / "files"


@pytest.fixture(scope="module")
def demo(output):
    return run("demo", "--output", output, "--rows", N_ROWS, "--max-iter", N_SWEEPS, "--seed", 3)


def test_demo_writes_three_files_and_says_so(demo, output):
    assert demo.exit_code == 0, demo.output
    assert sorted(path.name for path in output.iterdir()) == sorted([FIGURE_FILE, MODEL_FILE, REPORT_FILE])
    for path in output.iterdir():
        assert str(path) in demo.output


def test_demo_model_loads_and_transforms(demo, output):
    model = srflvm.load(output / MODEL_FILE)
    assert (model.random_state, model.n_iter_, model.callbacks) == (3, N_SWEEPS, None)
    Y = load_digits().data[:N_ROWS] / 16
    np.testing.assert_array_equal(model.transform(Y), model.embedding_)


def test_demo_code_runs(demo, output):
    report = (output / REPORT_FILE).read_text()
    code = report.split("```python\n")[1].split("```")[0]
    names = {}
    exec(code, names)
    assert names["images"].shape == (5, 8, 8)


def test_demo_report_has_the_numbers(demo, output):
    model = srflvm.load(output / MODEL_FILE)
    report = (output / REPORT_FILE).read_text()
    for text in (f"{model.elbo_:,.0f} nats", f"{model.start_} won (", "Seed 3", srflvm.__version__, "jax "):
        assert text in report
    accuracies = [line for line in report.splitlines() if "accuracy" in line and line.startswith("|")]
    assert len(accuracies) == 2
    assert all(0.1 < float(line.split("|")[2]) <= 1.0 for line in accuracies)


def test_demo_picture_is_wide_and_not_empty(demo, output):
    picture = matplotlib.image.imread(output / FIGURE_FILE)[:, :, :3]
    assert picture.shape == (960, 2560, 3)
    for panel in np.array_split(picture, 3, axis=1):
        assert panel.std() > 0.05


def test_demo_shows_a_convergence_warning_as_one_line(demo):
    lines = [line for line in demo.output.splitlines() if "ConvergenceWarning" in line]
    assert len(lines) == 1
    assert lines[0].startswith("ConvergenceWarning: ")
    assert "max_iter=2" in lines[0]


def test_options_reach_the_demo(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr("srflvm.cli.demo._run", lambda *arguments: calls.append(arguments))
    assert run("demo", "-o", tmp_path, "--seed", 7).exit_code == 0
    assert calls == [(tmp_path, 7, None, None)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demo", "--seed", "x"], "'--seed'"),
        (["demo", "--seed", "-1"], "'--seed'"),
        (["demo", "--max-iter", "0"], "'--max-iter'"),
        (["demo", "--colour"], "--colour"),
        (["demo", "surplus"], "surplus"),
        (["dmeo"], "dmeo"),
        (["--colour"], "--colour"),
    ],
)
def test_bad_usage_is_one_line_and_points_to_help(arguments, message):
    result = run(*arguments)
    assert_one_line_error(result, 2, message)
    assert result.output.rstrip().endswith("--help.")


@pytest.mark.parametrize("rows", [19, 1798])
def test_rows_out_of_range(tmp_path, rows):
    result = run("demo", "-o", tmp_path / "none", "--rows", rows)
    assert_one_line_error(result, 1, "between 20 and 1797")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("below", [".", "further"])
def test_output_that_cannot_be_written(tmp_path, below):
    (tmp_path / "file").write_text("in the way")
    result = run("demo", "-o", tmp_path / "file" / below)
    assert_one_line_error(result, 1, f"Cannot write files to {tmp_path / 'file'}")


def test_missing_matplotlib(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert_one_line_error(run("demo", "-o", tmp_path), 1, "pip install 'srflvm[plot]'")


def fail_with(error):
    def fail(*_, **__):
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (srflvm.NumericalError("not\nfinite"), "not finite"),
        (srflvm.DataError("a hole"), "a hole"),
        (MemoryError(), "MemoryError"),
    ],
)
def test_expected_failures_are_one_line(monkeypatch, error, message):
    monkeypatch.setattr("srflvm.cli.demo._run", fail_with(error))
    assert_one_line_error(run("demo"), 1, message)


def test_defects_keep_their_traceback(monkeypatch):
    monkeypatch.setattr("srflvm.cli.demo._run", fail_with(AttributeError("a defect")))
    assert isinstance(run("demo").exception, AttributeError)


def test_ctrl_c_ends_quietly(monkeypatch):
    monkeypatch.setattr("srflvm.cli.demo._run", fail_with(KeyboardInterrupt()))
    result = run("demo")
    assert result.exit_code in (1, 130)
    assert len(result.output.splitlines()) <= 1


def test_version():
    result = run("--version")
    assert (result.exit_code, result.output) == (0, f"srflvm {srflvm.__version__}\n")


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_lists_the_commands(arguments):
    result = run(*arguments)
    assert result.exit_code == 0
    assert "demo" in result.output
    assert "--version" in result.output


def some_progress():
    yield srflvm.Progress("start pca", 1, 20, -100.0, 100, 30.0)
    for iteration in range(6, 21):
        yield srflvm.Progress("fit", iteration, 20, 50.0, 100, 2.0 * iteration)


def test_progress_in_a_terminal():
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with FitBar(console) as bar:
        for progress in some_progress():
            bar(progress)
            bar._bar.refresh()
    text = console.file.getvalue()
    assert "start pca" in text
    assert "sweep 7/20, bound per entry 0.5000, 2 steps/s, 26 s left" in text


def test_progress_in_a_pipe_is_a_line_every_ten_sweeps():
    console = Console(file=io.StringIO(), width=80)
    with FitBar(console) as bar:
        for progress in some_progress():
            bar(progress)
    assert console.file.getvalue().splitlines() == [
        "fit: sweep 10/20, bound per entry 0.5000, 2 steps/s, 20 s left",
        "fit: sweep 20/20, bound per entry 0.5000, 2 steps/s, 0 s left",
    ]
