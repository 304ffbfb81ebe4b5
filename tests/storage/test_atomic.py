"""Temporary files are removed once their process is gone, and never before."""

import os
import subprocess
import sys
import time

import pytest

from srflvm.storage import atomic
from srflvm.storage.atomic import _remove_abandoned, _temporary_beside, in_use, whole_file

KILLED_WHILE_WRITING = """
import os, signal, sys
from pathlib import Path
from srflvm.storage.atomic import whole_file
with whole_file(Path(sys.argv[1])) as temporary:
    if temporary.suffix == ".zarr":
        temporary.mkdir()
        temporary = temporary / "chunk"
    temporary.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def write(path):
    with whole_file(path) as temporary:
        temporary.write_text("whole")


@pytest.mark.parametrize("name", ["table.csv.gz", "table.zarr"])
def test_what_a_killed_process_left_is_removed_by_the_next_one(tmp_path, name):
    ended = subprocess.run([sys.executable, "-c", KILLED_WHILE_WRITING, tmp_path / name])
    assert ended.returncode == -9
    assert len(os.listdir(tmp_path)) == 1
    write(tmp_path / "another.csv")
    assert os.listdir(tmp_path) == ["another.csv"]


def test_two_processes_write_at_once_without_disturbing_each_other(tmp_path):
    """Check that one goes on after the other has written to the same place and removed what it may."""
    program = KILLED_WHILE_WRITING.replace(
        "os.kill(os.getpid(), signal.SIGKILL)", "print(flush=True); input()"
    )
    command, pipe = [sys.executable, "-c", program, tmp_path / "table.csv"], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        other.stdout.readline()
        write(tmp_path / "table.csv")
        assert len(os.listdir(tmp_path)) == 2
        other.communicate("\n")
    assert other.returncode == 0
    assert os.listdir(tmp_path) == ["table.csv"]
    assert (tmp_path / "table.csv").read_text() == "half"


def test_writing_inside_writing_keeps_both(tmp_path):
    with whole_file(tmp_path / "outer.csv") as temporary:
        temporary.write_text("outer")
        write(tmp_path / "inner.csv")
        assert temporary.exists()
    assert sorted(os.listdir(tmp_path)) == ["inner.csv", "outer.csv"]


def test_an_earlier_process_with_the_same_number_is_gone(tmp_path, monkeypatch):
    own = _temporary_beside(tmp_path / "table.csv", ".csv")
    own.touch()
    assert in_use(own)
    monkeypatch.setattr(atomic, "_PROCESS", "0" * 8)
    _remove_abandoned(tmp_path)
    assert os.listdir(tmp_path) == []


def test_processes_of_other_machines_are_waited_for_a_day(tmp_path, monkeypatch):
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(atomic, "_machine", lambda: "0" * 8)
        theirs = _temporary_beside(tmp_path / "table.csv", ".csv")
    theirs.touch()
    _remove_abandoned(tmp_path)
    assert theirs.exists()
    os.utime(theirs, (time.time() - 90_000,) * 2)
    _remove_abandoned(tmp_path)
    assert not theirs.exists()


def test_files_of_other_names_are_left_alone(tmp_path):
    names = {".srflvm-notes.csv", ".srflvm-0123.tmp", "srflvm-1.tmp", ".tmp", f".srflvm-{'0' * 32}"}
    for name in names:
        (tmp_path / name).touch()
    write(tmp_path / "table.csv")
    assert set(os.listdir(tmp_path)) == names | {"table.csv"}


def test_a_folder_takes_the_place_of_a_folder(tmp_path):
    for content in ("old", "new"):
        with whole_file(tmp_path / "table.zarr") as temporary:
            temporary.mkdir()
            (temporary / content).touch()
    assert os.listdir(tmp_path) == ["table.zarr"]
    assert os.listdir(tmp_path / "table.zarr") == ["new"]


def test_the_old_folder_is_kept_until_the_new_one_is_in_its_place(tmp_path, monkeypatch):
    """Check that a process killed between the two renamings leaves the old one, and no writer removes it."""
    (tmp_path / "table.zarr").mkdir()
    (tmp_path / "table.zarr" / "old").touch()
    moved = []

    def killed_after_the_first(source, destination, replace=os.replace):
        if moved:
            raise KeyboardInterrupt
        moved.append(destination)
        replace(source, destination)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed_after_the_first)
        with pytest.raises(KeyboardInterrupt), whole_file(tmp_path / "table.zarr") as temporary:
            temporary.mkdir()
    write(tmp_path / "table.csv")
    assert os.listdir(moved[0]) == ["old"]
    with whole_file(tmp_path / "table.zarr") as temporary:
        temporary.mkdir()
    assert sorted(os.listdir(tmp_path)) == ["table.csv", "table.zarr"]
