"""Files that replace others only once they are complete."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from liverank.files import whole_file


def test_a_file_is_replaced_at_the_end_and_keeps_its_mode(tmp_path: Path) -> None:
    file, link = tmp_path / "edges.csv", tmp_path / "link.csv"
    file.write_text("before")
    file.chmod(0o640)
    link.symlink_to(file)
    with whole_file(link) as partial:
        partial.write_text("after")
        assert (partial.parent, partial.suffix) == (tmp_path, ".csv")
        assert file.read_text() == "before"
    assert file.read_text() == "after"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert link.is_symlink()
    assert sorted(tmp_path.iterdir()) == [file, link]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_an_error_leaves_everything_as_it_was(tmp_path: Path, error: type[BaseException]) -> None:
    def write(file: Path) -> None:
        with whole_file(file) as partial:
            partial.write_text("half")
            raise error

    present, missing = tmp_path / "present", tmp_path / "missing"
    present.write_text("before")
    for file in (present, missing):
        with pytest.raises(error):
            write(file)
    assert list(tmp_path.iterdir()) == [present]
    assert present.read_text() == "before"


def test_pipes_and_devices_are_written_directly(tmp_path: Path) -> None:
    pipe, found = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()))
    reader.start()
    with whole_file(pipe) as path:
        path.write_text("all")
    reader.join(60)
    assert found == ["all"]
    # a redirected stdout is a file, of which there is only the name
    with whole_file(Path("/dev/stdout")) as path:
        assert path == Path("/dev/stdout")


def test_a_name_may_be_as_long_as_the_file_system_allows(tmp_path: Path) -> None:
    file = tmp_path / ("n" * 244 + ".parquet.gz")
    with whole_file(file) as partial:
        assert partial.suffixes == [".parquet", ".gz"]
        partial.write_text("all")
    assert file.read_text() == "all"


def test_a_file_in_a_folder_that_cannot_be_changed_is_written_directly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "edges.csv"
    file.write_text("before")
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != tmp_path)
    with whole_file(file) as path:
        assert path == file
        path.write_text("after")
    assert file.read_text() == "after"


def test_a_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match=str(tmp_path)), whole_file(tmp_path) as path:
        path.write_text("")
