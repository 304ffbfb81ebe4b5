"""Programs that are kept in a folder, and found there by later processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from srflvm import use_compilation_cache
from srflvm.numerics import compilation_cache
from srflvm.numerics.compilation_cache import keep_programs_of_commands

SETTINGS = [name for name in dir(jax.config) if name.startswith("jax_")]

FIT = """
import collections, json, sys
import jax, numpy as np, srflvm

events = collections.Counter()
jax.monitoring.register_event_listener(lambda name, **_: events.update([name.rpartition("/")[2]]))
srflvm.use_compilation_cache(sys.argv[1])
Y = np.random.RandomState(0).standard_normal((30, 4))
model = srflvm.SRFLVM(n_frequencies=3, max_iter=2, tol=0, random_state=0).fit(Y)
print(json.dumps([events["cache_hits"], events["cache_misses"], model.embedding_.tolist()]))
"""


@pytest.fixture
def unchanged_jax():
    """Put back the settings of JAX that a test has changed."""
    before = {name: getattr(jax.config, name) for name in SETTINGS if "cache" in name}
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    jax.experimental.compilation_cache.compilation_cache.reset_cache()


def test_a_second_process_compiles_nothing_and_finds_the_same(tmp_path):
    def fit():
        command = [sys.executable, "-W", "ignore", "-c", FIT, str(tmp_path / "programs")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    (_, compiled, first), (found, compiled_again, second) = fit(), fit()
    assert compiled > 0
    assert (found >= compiled, compiled_again) == (True, 0)
    np.testing.assert_array_equal(first, second)


def test_commands_keep_programs_in_the_folder_of_caches(tmp_path):
    np.save(tmp_path / "table.npy", np.random.RandomState(0).standard_normal((20, 3)))
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "caches")}
    del environment["JAX_COMPILATION_CACHE_DIR"]

    def programs_after_a_fit():
        options = ["--max-iter", "1", "--frequencies", "3", "--force", "--quiet", "-o", "m.srflvm"]
        command = [sys.executable, "-m", "srflvm.cli", "fit", "table.npy", *options]
        subprocess.run(command, check=True, cwd=tmp_path, env=environment, capture_output=True)
        return {path.name for path in (tmp_path / "caches").rglob("*-cache")}

    kept = programs_after_a_fit()
    assert any("_climb_steps" in name for name in kept)
    assert programs_after_a_fit() == kept


def test_import_changes_no_setting_of_jax():
    code = f"""
import jax
names = {SETTINGS}
before = {{name: getattr(jax.config, name) for name in names}}
import srflvm, srflvm.estimator, srflvm.cli, srflvm.numerics.compilation_cache
srflvm.SRFLVM, srflvm.use_compilation_cache
print(before == {{name: getattr(jax.config, name) for name in names}})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


def test_the_folder_is_the_one_given_and_only_the_owner_s(tmp_path, unchanged_jax):
    folder = use_compilation_cache(tmp_path / "deep" / "programs")
    assert folder == tmp_path / "deep" / "programs"
    assert jax.config.jax_compilation_cache_dir == str(folder)
    assert jax.config.jax_persistent_cache_min_compile_time_secs == 0.0
    jax.jit(lambda x: 3.0 * x + 17.25)(np.ones(7))
    assert list(folder.glob("*-cache"))
    if os.name == "posix":
        assert folder.stat().st_mode & 0o077 == 0


def test_the_default_folder_is_in_the_user_s_folder_of_caches(tmp_path, monkeypatch, unchanged_jax):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = use_compilation_cache()
    assert folder.parent == tmp_path / "srflvm"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/folders/are/ignored")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    if sys.platform == "linux":
        assert use_compilation_cache().parent == tmp_path / "home" / ".cache" / "srflvm"


def test_a_folder_that_cannot_be_written_to_is_told_and_left_alone(tmp_path, unchanged_jax):
    (tmp_path / "file").write_text("no folder")
    before = jax.config.jax_compilation_cache_dir
    with pytest.warns(UserWarning, match="Compiled programs are not kept: cannot write to .*file"):
        assert use_compilation_cache(tmp_path / "file") is None
    assert jax.config.jax_compilation_cache_dir == before


def test_commands_follow_the_environment(tmp_path, monkeypatch):
    names = ["JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"]
    names += ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"]
    for name in names:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("SRFLVM_CACHE", "off")
    assert keep_programs_of_commands() is None
    assert not any(name in os.environ for name in names)
    monkeypatch.setenv("SRFLVM_CACHE", str(tmp_path / "mine"))
    assert keep_programs_of_commands() is None
    assert [os.environ[name] for name in names] == [str(tmp_path / "mine"), "0.0", "-1"]
    monkeypatch.setenv("SRFLVM_CACHE", str(tmp_path / "other"))
    assert keep_programs_of_commands() is None
    assert os.environ[names[0]] == str(tmp_path / "mine"), "what the user has given to JAX stays"
    monkeypatch.delenv(names[0])
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("SRFLVM_CACHE", str(tmp_path / "file"))
    assert "cannot write to" in keep_programs_of_commands()
    assert names[0] not in os.environ


def test_the_oldest_programs_are_deleted(tmp_path, monkeypatch):
    monkeypatch.setattr(compilation_cache, "_MOST_BYTES", 250)
    for age, name in enumerate(["new-cache", "middle-cache", "old-cache"]):
        (tmp_path / name).write_bytes(b"x" * 100)
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    (tmp_path / "notes").write_bytes(b"x" * 1000)
    assert compilation_cache._prepare(Path(tmp_path)) is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["middle-cache", "new-cache", "notes"]
