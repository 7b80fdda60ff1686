"""Files that replace others only once they are complete."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """The path to write the file `path` to: one beside it, which takes its place at the end. After
    an error it is removed, and a file that was at `path` is as it was: an incomplete one would be
    read as a smaller graph. Devices and pipes are written directly, and files in folders where none
    can be made.

    Raises OSError.
    """
    place = path.absolute()
    is_device = place.is_relative_to("/dev") and not place.is_relative_to("/dev/shm")
    if is_device or (path.exists() and not path.is_file()):
        yield path
        return
    target = Path(os.path.realpath(path))
    if target.exists() and not os.access(target.parent, os.W_OK):
        yield target
        return
    # of any length of name, with the suffixes that say what to write
    partial = target.with_name(f".{secrets.token_hex(8)}{''.join(target.suffixes[-2:])}")
    try:
        if target.exists():
            target.open("ab").close()  # raises if it may not be written
            partial.touch()
            shutil.copymode(target, partial)
        yield partial
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
