"""The examples of a page, run one after the other as a reader would.

A block of code may be followed by a block of what it prints, where `…` stands for anything.
"""

from __future__ import annotations

import io
import linecache
import os
import re
import shlex
from collections.abc import Generator
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

import httpx
import pytest

from liverank import Client
from liverank_service.cli.main import main
from tests.crash.nursery import Nursery, Server

ROOT = Path(__file__).parents[2]
ADDRESS = "http://127.0.0.1:8080"

_BLOCK = re.compile(
    r"^```(sh|python)\n(.*?)^```\n(?:\n```(json|text)\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE
)


def curl_arguments(command: str) -> dict[str, Any]:
    """A curl command of a page as arguments of httpx.Client.request; the URL without its host."""
    words = iter(shlex.split(command.replace("\\\n", " "))[1:])
    request: dict[str, Any] = {"method": "GET", "headers": {}}
    for word in words:
        if word == "-X":
            request["method"] = next(words)
        elif word == "-H":
            name, value = next(words).split(": ", 1)
            request["headers"][name] = value
        elif word == "-d":
            request["content"] = next(words).encode()
        elif word not in ("-s", "-i", "-N"):
            request["url"] = word.removeprefix(ADDRESS)
    if "content" in request and request["method"] == "GET":
        request["method"] = "POST"
    return request


class Examples:
    """The examples of one page.

    names  what the Python examples define
    ran    number of blocks
    """

    def __init__(self, page: Path, folder: Path, nursery: Nursery | None = None) -> None:
        """folder: where examples write files and servers keep their data. nursery: of servers"""
        self.names: dict[str, Any] = {}
        self.ran = 0
        self._text = page.read_text("utf-8")
        self._folder = folder
        self._nursery = nursery
        self._server: Server | None = None

    @property
    def count(self) -> int:
        """Number of blocks of code, of any language but those of what is printed."""
        return len(re.findall(r"^```(?!json|text)\w+\n", self._text, re.MULTILINE))

    def run(self) -> None:
        """Raises AssertionError if a block prints anything else than the page says."""
        for language, source, kind, expected in _BLOCK.findall(self._text):
            printed = self._python(source) if language == "python" else self._shell(source)
            if kind:
                assert matches(printed, expected, kind == "json"), f"{source}\n{printed}"
            self.ran += 1

    def close(self) -> None:
        for value in self.names.values():
            if isinstance(value, Client | Generator):
                value.close()
        self.names.clear()
        if self._server is not None:
            self._server.kill()
            self._server.wait()

    def _python(self, source: str) -> str:
        if self._server is not None:
            source = source.replace(ADDRESS, self._server.url)
        name = f"example {self.ran}"
        # where inspect looks for the source of a function
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        with redirect_stdout(io.StringIO()) as printed:
            exec(compile(source, name, "exec"), self.names)
        return printed.getvalue()

    def _shell(self, source: str) -> str:
        commands = [line for line in source.replace("\\\n", " ").splitlines() if line]
        return "".join(map(self._command, commands))

    def _command(self, command: str) -> str:
        words = shlex.split(command, comments=True)
        match words:
            case ["pip", "install", *packages]:
                _check_extras(packages[-1])
            case ["curl", *_]:
                assert self._server is not None
                with httpx.Client(base_url=self._server.url, timeout=60) as http:
                    return http.request(**curl_arguments(command)).text
            case [*settings, "liverank", "serve", "--data", data]:
                self._serve(self._folder / data, dict(each.split("=") for each in settings))
            case ["liverank", *arguments]:
                return self._liverank(arguments)
            case _:
                raise AssertionError(f"the examples cannot run {command!r}")
        return ""

    def _serve(self, data: Path, settings: dict[str, str]) -> None:
        """A second server takes the place of the first, which is killed."""
        if self._server is not None:
            self._server.kill()
            self._server.wait()
        assert self._nursery is not None
        self._server = self._nursery.start(data, None, settings, checkpoint_bytes=None)
        assert self._server.wait_until_ready()
        os.environ["LIVERANK_URL"] = self._server.url

    def _liverank(self, arguments: list[str]) -> str:
        with (
            chdir(self._folder),
            redirect_stdout(io.StringIO()) as printed,
            pytest.raises(SystemExit) as ended,
        ):
            main(arguments)
        assert ended.value.code in (0, None)
        return printed.getvalue()


def matches(printed: str, expected: str, is_json: bool) -> bool:
    """Whether `printed` is what a page says, in which `…` stands for anything; line breaks of JSON
    do not count.
    """
    if is_json:
        expected = re.sub(r"\n\s*", "", expected)
    parts = (re.escape(part) for part in expected.strip().split("…"))
    return re.fullmatch(".*?".join(parts), printed.strip(), re.DOTALL) is not None


def _check_extras(package: str) -> None:
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    for extra in re.findall(r"\w+", package.partition("[")[2]):
        assert re.search(rf"^{extra} = \[", project, re.MULTILINE), f"no extra is named {extra!r}"
