"""The machine code of the kernels is found, compiled where it is missing, and never wrong."""

from __future__ import annotations

import hashlib
import json
import runpy
from collections.abc import Iterable
from pathlib import Path

import pytest

from liverank_gpu.backends.compiling import own_folder
from liverank_gpu.backends.cuda.kernels import binaries, loader
from liverank_gpu.backends.cuda.kernels.binaries import OPTIONS
from liverank_gpu.backends.cuda.kernels.nvrtc import Compiled

UNWEIGHTED = {unit for unit in loader.units() if not loader.is_weighted(unit)}


class Kept:
    """Binaries in folders that are empty at first.

    compiled  the units that were compiled, each with its architecture
    """

    def __init__(self, installed: Path) -> None:
        self.installed, self.compiled = installed, list[str]()

    def of(self, unit: str, capability: str) -> binaries.Binary:
        return binaries.binary_of(unit, capability, self.installed, self._compile)

    def install(self, *architectures: str) -> None:
        for each in architectures:
            binaries.save(self.installed, "select", each, fake("select", each))

    def _compile(self, units: Iterable[str], architecture: str) -> dict[str, Compiled]:
        units = list(units)
        self.compiled.extend(f"{architecture} {unit}" for unit in units)
        return {unit: fake(unit, architecture) for unit in units}


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "cupy"))
    return Kept(tmp_path / "installed")


def fake(unit: str, architecture: str) -> Compiled:
    names = {expression: f"_Z{expression}" for expression in loader.kernels(unit)}
    return Compiled(f"{architecture} {unit}".encode(), names, "")


def test_missing_units_are_compiled_once_all_together(kept: Kept) -> None:
    for unit in sorted(UNWEIGHTED):
        binary = kept.of(unit, "90")
        assert binary.path.read_bytes() == f"sm_90 {unit}".encode()
        assert set(binary.names) == set(loader.kernels(unit))
    assert set(kept.compiled) == {f"sm_90 {unit}" for unit in UNWEIGHTED}
    assert len(kept.compiled) == len(UNWEIGHTED)
    kept.of("rebuild_weighted", "90")
    assert len(kept.compiled) == len(loader.units())


@pytest.mark.parametrize(
    ("capability", "found"),
    [("80", "sm_80"), ("86", "sm_80"), ("89", "sm_89"), ("90", "sm_90"), ("121", "sm_120")],
)
def test_code_runs_on_devices_of_its_major_version(kept: Kept, capability: str, found: str) -> None:
    kept.install("sm_80", "sm_89", "sm_90", "sm_120")
    binary = kept.of("select", capability)
    assert binary.path.read_bytes() == f"{found} select".encode()
    assert kept.compiled == []


@pytest.mark.parametrize("capability", ["75", "100", "101", "120"])
def test_code_of_other_devices_is_not_used(kept: Kept, capability: str) -> None:
    kept.install("sm_80", "sm_90", "sm_103", "sm_121")
    binary = kept.of("select", capability)
    assert binary.path.read_bytes() == f"sm_{capability} select".encode()
    assert len(kept.compiled) == len(UNWEIGHTED)


def test_what_is_installed_comes_before_the_cache(kept: Kept) -> None:
    kept.of("select", "90")
    assert kept.compiled
    kept.install("sm_90")
    assert kept.of("select", "90").path.is_relative_to(kept.installed)


def test_another_source_is_compiled_again(kept: Kept) -> None:
    path = kept.of("select", "90").path
    text = "\0".join([loader.source("select"), *OPTIONS, *loader.kernels("select")])
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    assert path.stem == f"select-{digest}"
    for each in path.parent.glob("select-*"):
        each.rename(each.with_name(each.name.replace(digest, "0" * 16)))
    kept.compiled.clear()
    assert kept.of("select", "90").path == path
    assert kept.compiled == ["sm_90 select"]


@pytest.mark.parametrize("damage", ["empty", "changed", "no names", "other names", "text"])
def test_a_damaged_file_is_compiled_again(kept: Kept, damage: str) -> None:
    binary = kept.of("select", "90")
    kept.compiled.clear()
    facts = binary.path.with_suffix(".json")
    if damage == "empty":
        binary.path.write_bytes(b"")
    elif damage == "changed":
        binary.path.write_bytes(binary.path.read_bytes()[:-1] + b"?")
    elif damage == "no names":
        facts.unlink()
    elif damage == "other names":
        document = json.loads(facts.read_text())
        document["names"].popitem()
        facts.write_text(json.dumps(document))
    else:
        facts.write_text("no JSON")
    again = kept.of("select", "90")
    assert again.path.read_bytes() == b"sm_90 select"
    assert kept.compiled == ["sm_90 select"]


def test_a_cache_that_cannot_be_written_is_done_without(
    kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    own_folder.cache_clear()
    try:
        for _ in range(2):
            assert kept.of("select", "90").path.read_bytes() == b"sm_90 select"
    finally:
        own_folder.cache_clear()
    # kept as long as this process lives
    assert len(kept.compiled) == len(UNWEIGHTED)


def test_the_command_compiles_kernels_for_an_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # test_compile.py compiles all of them
    units = ("frontier", "select", "select_weighted")
    for unit in {*loader.units()} - {*units}:
        binaries.save(tmp_path, unit, "sm_90", fake(unit, "sm_90"))
    monkeypatch.setattr("sys.argv", ["kernels", "sm_90", "--out", str(tmp_path)])
    runpy.run_module("liverank_gpu.backends.cuda.kernels", run_name="__main__")
    assert capsys.readouterr().out == "compiled 3 files for sm_90\n"
    for unit in units:
        (path,) = (tmp_path / "sm_90").glob(f"{unit}-*.cubin")
        assert path.read_bytes().startswith(b"\x7fELF")
        facts = json.loads(path.with_suffix(".json").read_text())
        assert set(facts["names"]) == set(loader.kernels(unit))
        for name in facts["names"].values():
            assert name.encode() in path.read_bytes()
    earlier = tmp_path / "sm_90" / "frontier-0123456789abcdef.cubin"
    earlier.write_bytes(b"of another source")
    (tmp_path / "sm_90" / path.name).write_bytes(b"damaged")
    runpy.run_module("liverank_gpu.backends.cuda.kernels", run_name="__main__")
    assert capsys.readouterr().out == "compiled 1 files for sm_90\n"
    assert not earlier.exists()
    assert path.read_bytes().startswith(b"\x7fELF")
