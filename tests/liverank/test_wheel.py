"""The wheel, installed with its core dependencies alone into an empty environment."""

from __future__ import annotations

import platform
import runpy
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.service.server import Server
from tools import wheels

ROOT = Path(__file__).parents[2]
MEGABYTES = 60.0
ENGINE_MEGABYTES = 270.0


class Hook(NamedTuple):
    """The build hook, which compiles nothing."""

    module: dict[str, Any]
    compiled: list[str]

    def build_data(self, version: str = "standard") -> dict[str, Any]:
        data: dict[str, Any] = {"force_include": {}}
        self.module["CustomBuildHook"].initialize(None, version, data)
        return data


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Hook:
    for name in ("LEVELS", "PLATFORM", "CUBINS"):
        monkeypatch.delenv(f"LIVERANK_{name}", raising=False)
    module = runpy.run_path(str(ROOT / "gpu" / "hatch_build.py"))
    compiled: list[str] = []

    def extensions(target: str = "") -> list[Path]:
        compiled.append(target)
        folder = module["BUILD"] / target if target else module["NATIVE"]
        levels = module["levels"](target)
        return [folder / f"_kernels_v{each}.abi3.so" for each in levels]

    monkeypatch.setitem(module["CustomBuildHook"].initialize.__globals__, "extensions", extensions)
    return Hook(module, compiled)


def test_a_wheel_is_for_this_machine(hook: Hook) -> None:
    data = hook.build_data()
    assert hook.compiled == [""]
    assert data["tag"] == f"cp311-abi3-linux_{platform.machine()}"
    assert len(data["artifacts"]) == 1
    assert data["artifacts"][0].startswith("/gpu/liverank_gpu/native/_kernels_v")
    assert data["force_include"] == {}


@pytest.mark.parametrize(("target", "levels"), [("x86_64", [2, 3]), ("aarch64", [0])])
def test_a_wheel_for_a_platform_has_its_kernels_and_the_machine_code(
    hook: Hook, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, target: str, levels: list[int]
) -> None:
    (tmp_path / "sm_90").mkdir()
    (tmp_path / "sm_90" / "push-0.cubin").touch()
    monkeypatch.setenv("LIVERANK_PLATFORM", target)
    monkeypatch.setenv("LIVERANK_CUBINS", str(tmp_path))
    data = hook.build_data()
    assert hook.compiled == [target]
    assert data["tag"] == f"cp311-abi3-manylinux_2_28_{target}"
    assert "artifacts" not in data
    binary = "liverank_gpu/backends/cuda/kernels/binaries/sm_90/push-0.cubin"
    assert data["force_include"].pop(str(tmp_path / "sm_90" / "push-0.cubin")) == binary
    assert data["force_include"] == {
        str(ROOT / "build" / target / f"_kernels_v{level}.abi3.so"): (
            f"liverank_gpu/native/_kernels_v{level}.abi3.so"
        )
        for level in levels
    }
    # the compiler of another kind of machine is ziglang's alone
    command = hook.module["_COMPILER"]["command"](target)
    assert command[-2:] in ([], ["-target", f"{target}-linux-gnu.2.28"])
    expected = [] if command else ["ziglang>=0.14"]
    assert hook.module["CustomBuildHook"].dependencies(None) == expected


def test_an_editable_installation_is_for_this_machine(
    hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIVERANK_PLATFORM", "aarch64")
    monkeypatch.setenv("LIVERANK_CUBINS", "/nothing")
    data = hook.build_data("editable")
    assert (hook.compiled, data["force_include"]) == ([""], {})


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("PLATFORM", "riscv64", "expected 'x86_64' or 'aarch64', got 'riscv64'"),
        ("CUBINS", "/nothing", "expected a folder with machine code, got '/nothing'"),
    ],
)
def test_the_hook_refuses_what_it_cannot_build(
    hook: Hook, monkeypatch: pytest.MonkeyPatch, name: str, given: str, message: str
) -> None:
    monkeypatch.setenv(f"LIVERANK_{name}", given)
    with pytest.raises(SystemExit, match=f"LIVERANK_{name}: {message}"):
        hook.build_data()


def test_a_wheel_of_a_release_is_checked(tmp_path: Path) -> None:
    elf = b"\x7fELF" + bytes(14)
    good = {
        "liverank_gpu/native/_kernels.abi3.so": elf + b"\xb7\0 GLIBC_2.17 GLIBC_2.28",
        **{f"binaries/{each}/push-0.cubin": b"" for each in wheels.ARCHITECTURES},
    }

    def faults(changed: dict[str, bytes], tag: str = "manylinux_2_28_aarch64") -> list[str]:
        wheel = tmp_path / f"liverank-1-cp311-abi3-{tag}.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for name, content in {**good, **changed}.items():
                archive.writestr(name, content)
        return wheels.faults(wheel, "aarch64")

    (library,) = [name for name in good if name.endswith(".so")]
    assert faults({}) == []
    assert faults({}, "linux_aarch64") != []
    assert faults({library: elf + b"\x3e\0 GLIBC_2.17"}) == [f"{library} is for another machine"]
    newer = elf + b"\xb7\0 GLIBC_2.34 libstdc++.so.6"
    assert faults({library: newer}) == [
        f"{library} needs glibc (2, 34)",
        f"{library} needs libstdc++",
    ]
    assert faults({"other.so": elf + b"\xb7\0 GLIBC_2.17"}) != []
    assert faults({"binaries/sm_90/sweep-0.cubin": b""}) != []


class Installed(NamedTuple):
    wheel: Path
    python: Path
    site_packages: Path

    def run(self, program: str) -> subprocess.CompletedProcess[str]:
        """Runs a program in the environment, without this checkout on its path."""
        return subprocess.run(
            [self.python, "-I", "-c", program], capture_output=True, text=True, cwd="/"
        )


def pip(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Skips where no package index can be reached; any other failure is an error."""
    folder = tmp_path_factory.mktemp("wheel")
    probe = pip("download", "--quiet", "--no-deps", "--dest", folder / "probe", "idna")
    if probe.returncode:
        pytest.skip(f"no package index is reachable: {probe.stderr.strip().splitlines()[-1]}")
    built = pip("wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("liverank-*.whl")
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    done = pip("--python", python, "install", "--quiet", wheel)
    assert done.returncode == 0, done.stderr
    (site_packages,) = environment.glob("lib/python*/site-packages")
    return Installed(wheel, python, site_packages)


def test_the_wheel_has_three_packages_with_types_and_nothing_else(installed: Installed) -> None:
    names = zipfile.ZipFile(installed.wheel).namelist()
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {
        "liverank_gpu",
        "liverank",
        "liverank_service",
    }
    assert {
        f"{package}/py.typed" for package in ("liverank_gpu", "liverank", "liverank_service")
    } <= set(names)


def test_the_wheel_has_the_files_of_the_dashboard(installed: Installed) -> None:
    names = set(zipfile.ZipFile(installed.wheel).namelist())
    files = {
        path
        for path in (ROOT / "service/liverank_service/http/dashboard").rglob("*")
        if path.is_file()
    }
    assert {"index.html", "main.js", "uPlot.LICENSE"} <= {path.name for path in files}
    assert {str(path.relative_to(ROOT / "service")) for path in files} <= names


def test_the_wheel_has_what_programs_are_compiled_with(installed: Installed) -> None:
    names = set(zipfile.ZipFile(installed.wheel).namelist())
    headers = {
        *(ROOT / "gpu/liverank_gpu/native").glob("*.h"),
        *(ROOT / "gpu/liverank_gpu/kernels").glob("*.h"),
    }
    assert len(headers) > 5
    headers |= {ROOT / "gpu/liverank_gpu/native" / each for each in ("module.cpp", "pool.cpp")}
    assert {str(path.relative_to(ROOT / "gpu")) for path in headers} <= names


def test_the_core_is_small(installed: Installed) -> None:
    files = (path for path in installed.site_packages.rglob("*") if path.is_file())
    assert sum(path.stat().st_size for path in files) < MEGABYTES * 1e6


def with_engine(installed: Installed, environment: Path, *others: str) -> Path:
    """The Python of a new environment with the extra `engine`, and with other requirements."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    done = pip("--python", python, "install", "--quiet", f"{installed.wheel}[engine]", *others)
    assert done.returncode == 0, done.stderr
    return python


EVERYTHING = """
import numpy as np
import liverank
from liverank_gpu import EdgeBatch, Engine, Options, PersonalizedQuery

print(np.__version__)
rows = np.random.default_rng(1).integers(0, 200, (2_000, 2))
ranks = liverank.pagerank(rows, backend="cpu", target_error=1e-12)
engine = Engine(Options(target_error=1e-12, weighted=True), "cpu")
engine.apply(EdgeBatch(rows[:, 0], rows[:, 1], weights=np.ones(len(rows), np.float32)))
engine.update()
print(abs(engine.publish().to_numpy()[ranks.vertices] - ranks.ranks).sum() < 3e-12)
engine.watch("one", PersonalizedQuery(np.array([1, 2]), k=5))
engine.apply(EdgeBatch.of([(0, 1)], delete=[tuple(rows[0].tolist())], remove=[7]))
print(engine.update().converged)
engine.refresh_watched()
queries = [PersonalizedQuery(np.array([each]), k=5) for each in range(4)]
answers = [engine.watched("one"), *engine.personalized_many(queries)]
print([len(each.vertices) for each in answers], engine.run("components").values.min())
again = Engine(engine.options, "cpu")
again.restore(engine.capture(engine.staging_buffer()).snapshot())
print((again.publish().to_numpy() == engine.publish().to_numpy()).all())
"""


def test_the_oldest_numpy_is_enough(installed: Installed, tmp_path: Path) -> None:
    python = with_engine(installed, tmp_path / "environment", "numpy==1.26.*", "pyarrow<26")
    done = subprocess.run([python, "-c", EVERYTHING], capture_output=True, text=True, cwd=tmp_path)
    version, *lines = done.stdout.splitlines()
    assert (version[:5], lines, done.stderr) == (
        "1.26.",
        ["True", "True", "[5, 5, 5, 5, 5] 0", "True"],
        "",
    )


def test_ranks_beside_files_of_users_that_are_called_gpu_and_service(
    installed: Installed, tmp_path: Path
) -> None:
    environment = tmp_path / "environment"
    python = with_engine(installed, environment)
    (site_packages,) = environment.glob("lib/python*/site-packages")
    assert {path.name for path in site_packages.iterdir()}.isdisjoint(
        {"gpu", "service", "tests", "benchmarks", "tools"}
    )
    files = (path for path in site_packages.rglob("*") if path.is_file())
    assert sum(path.stat().st_size for path in files) < ENGINE_MEGABYTES * 1e6
    project = tmp_path / "project"
    (project / "service").mkdir(parents=True)
    (project / "service" / "__init__.py").write_text("raise ImportError('the service of a user')")
    (project / "gpu.py").write_text("NAME = 'the gpu of a user'")
    (project / "rank.py").write_text(
        "import gpu, liverank, pyarrow\n"
        "edges = pyarrow.table({'source': ['a', 'b', 'c'], 'target': ['b', 'c', 'b']})\n"
        "ranks = liverank.pagerank(edges, backend='cpu')\n"
        "print(gpu.NAME, max(ranks.to_dict(), key=ranks.to_dict().get))\n"
    )
    done = subprocess.run([python, "rank.py"], capture_output=True, text=True, cwd=project)
    assert (done.stdout, done.stderr) == ("the gpu of a user b\n", "")


def test_the_import_loads_nothing_heavy(installed: Installed) -> None:
    done = installed.run(
        "import sys, liverank; dir(liverank)\n"
        "print(set(sys.modules) & {'httpx', 'msgspec', 'numpy', 'pyarrow', 'liverank_gpu'})"
    )
    assert (done.stdout, done.stderr) == ("set()\n", "")


def test_what_is_not_in_the_core_says_what_to_install(installed: Installed) -> None:
    done = installed.run(
        "import liverank\ntry: liverank.Engine\nexcept ImportError as error: print(error)"
    )
    assert (
        done.stdout
        == "numpy is not installed: pip install -e '.[engine]' in the clone of liverank\n"
    )
    done = installed.run(
        "from liverank import Client, MissingPackage\n"
        "class Frame: __arrow_c_stream__ = None\n"
        "try: Client().insert('g', Frame())\n"
        "except MissingPackage as error: print(error)"
    )
    assert (
        done.stdout
        == "pyarrow is not installed: pip install -e '.[engine]' in the clone of liverank\n"
    )
    for table in ("export_ranks('g')", "export_edges('g', format='csv')"):
        done = installed.run(
            "from liverank import Client, MissingPackage\n"
            f"try: Client().{table}.to_arrow()\n"
            "except MissingPackage as error: print(error)"
        )
        assert (
            done.stdout
            == "pyarrow is not installed: pip install -e '.[engine]' in the clone of liverank\n"
        )
    for name in ("pandas", "polars"):
        done = installed.run(
            "from liverank.client.responses import TopRanks\n"
            f"try: TopRanks(1, 1, 0.0, [], 0.0, 0, True, [], []).to_{name}()\n"
            "except ImportError as error: print(error)"
        )
        assert (
            done.stdout
            == f"{name} is not installed: pip install -e '.[{name}]' in the clone of liverank\n"
        )
    command = subprocess.run(
        [installed.python.with_name("liverank"), "--help"], capture_output=True, text=True
    )
    assert (command.returncode, command.stdout) == (1, "")
    assert command.stderr == (
        "liverank: the command needs typer, which is not installed: "
        "pip install -e '.[server]' in the clone of liverank\n"
    )


def test_the_client_of_the_core_talks_to_a_server(installed: Installed, server: Server) -> None:
    url = str(server.http.base_url)
    graph = server.new_graph().rsplit("/", 1)[1]
    done = installed.run(
        "from liverank import Client\n"
        f"with Client({url!r}) as client:\n"
        f"    client.send({graph!r}, insert=[('ada', 'grace'), ('alan', 'grace')])\n"
        f"    print(client.top({graph!r}, k=1).ranks[0].vertex)\n"
    )
    assert (done.stdout, done.stderr) == ("grace\n", "")


SNIPPETS = [
    ("place: float = client.top('g').ranks[0].rank", None),
    ("frame = client.insert('g', liverank.pagerank([('a', 'b')])).inserted + 1", None),
    ("liverank.pagerank([], damped=1)", 'Unexpected keyword argument "damped"'),
    (
        "liverank.AsyncClient().top('g').ranks",
        '"Coroutine[Any, Any, TopRanks]" has no attribute',
    ),
    ("place: str = client.top('g').ranks[0].rank", "Incompatible types in assignment"),
    ("client.top('g', many=3)", 'Unexpected keyword argument "many"'),
]
"""Lines that use the package, and the error that a type checker has to find, if any."""


def test_type_checkers_see_the_types_of_the_package(installed: Installed, tmp_path: Path) -> None:
    header = "import liverank\nfrom liverank import Client\n\nwith Client() as client:\n"
    for number, (line, _) in enumerate(SNIPPETS):
        (tmp_path / f"snippet_{number}.py").write_text(f"{header}    {line}\n")
    checker = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file=",
        f"--cache-dir={tmp_path}",
    ]
    # all at once: each run reads the whole package
    done = subprocess.run(
        [*checker, f"--python-executable={installed.python}", *tmp_path.glob("snippet_*.py")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    *found, summary = done.stdout.splitlines()
    expected = {
        f"snippet_{number}.py": error for number, (_, error) in enumerate(SNIPPETS) if error
    }
    assert f"checked {len(SNIPPETS)} source files" in summary
    assert {line.split(":")[0] for line in found} == set(expected), done.stdout
    for name, error in expected.items():
        assert any(line.startswith(f"{name}:5: error: ") and error in line for line in found)
