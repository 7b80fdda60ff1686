"""Two servers that consume one stream of Redis are replicas, and a proxy in front of them."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import redis

from liverank import Client
from liverank.client import SourcePosition
from liverank.sources.broker import Address
from liverank.sources.consumer import Target
from liverank.sources.session import consume
from tests.liverank.sources.brokers import broker, free_port, program, redis_server, wait_for
from tests.service.server import Server, started

STREAM = "follows"
GRAPH = "replicated"
PROXY = Path("docker/haproxy/haproxy.cfg").resolve()


@contextmanager
def proxy(*urls: str) -> Iterator[str]:
    """The proxy of the repository in front of these servers; its URL."""
    port = free_port()
    replicas = {
        f"REPLICA_{number}": httpx.URL(url).netloc.decode() for number, url in enumerate(urls, 1)
    }
    command = [program("haproxy"), "-q", "-f", str(PROXY)]
    with broker(command, port, LISTEN=f"127.0.0.1:{port}", **replicas):
        yield f"http://127.0.0.1:{port}"


THREADS = 3


@dataclass
class Readers:
    """Threads that read until they are stopped; each failure is kept.

    cut  responses that had begun when they ended, which the proxy cannot send again
    """

    url: str
    position: str
    versions: list[int] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)

    def read(self) -> None:
        paths = ("top?k=3", "ranks/v1", "neighbors/v1", "top?k=3&offset=1")
        with httpx.Client(base_url=self.url, timeout=60) as http:
            while not self.stopping.is_set():
                for path in paths:
                    mark = "&" if "?" in path else "?"
                    url = f"/graphs/{GRAPH}/{path}{mark}min_position={self.position}"
                    try:
                        answer = http.get(url)
                        answer.raise_for_status()
                        self.versions.append(answer.json()["version"])
                    except (httpx.HTTPError, KeyError) as error:
                        begun = "without sending complete message body" in str(error)
                        (self.cut if begun else self.failures).append(f"{path}: {error!r}")

    @contextmanager
    def reading(self) -> Iterator[None]:
        threads = [threading.Thread(target=self.read) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stopping.set()
            for thread in threads:
                thread.join()


def test_replicas_agree_at_a_position_and_one_may_be_killed(server: Server, tmp_path: Path) -> None:
    edges = [(f"v{each % 7}", f"v{each * each % 11}") for each in range(60)]
    (tmp_path / "redis").mkdir()
    with (
        redis_server(tmp_path / "redis") as stream,
        started(tmp_path / "data") as (process, other),
        Client(server.url("")) as first,
        Client(other) as second,
    ):
        with redis.Redis(port=stream.port) as client:
            for source, target in edges:
                client.xadd(STREAM, {"data": json.dumps({"source": source, "target": target})})
        positions = []
        # in batches of their own
        for replica, url, size in ((first, server.url(""), 7), (second, other, 25)):
            replica.create(GRAPH)
            address = Address(f"redis://127.0.0.1:{stream.port}", STREAM, size=size)
            assert consume(url, "redis", address, Target(GRAPH, f"redis:{STREAM}"), 0.5) == 60
            positions.append(replica.sources(GRAPH))
        check_that_they_agree(first, second, *positions)
        (position,) = positions[0]
        check_that_reads_survive(process, [server.url(""), other], position)


def check_that_they_agree(
    first: Client, second: Client, one: list[SourcePosition], two: list[SourcePosition]
) -> None:
    assert list(map(str, one)) == list(map(str, two))
    # each reads at the position of the other
    tops = [first.top(GRAPH, 20, min_position=two), second.top(GRAPH, 20, min_position=one)]
    assert tops[0].version != tops[1].version
    ranks = [{place.vertex: place.rank for place in top.ranks} for top in tops]
    assert ranks[0].keys() == ranks[1].keys()
    distance = sum(abs(rank - ranks[1][vertex]) for vertex, rank in ranks[0].items())
    assert distance <= tops[0].error_bound + tops[1].error_bound
    vertices = list(ranks[0])
    graphs = [each.subgraph(GRAPH, vertices, min_position=one) for each in (first, second)]
    assert sorted(graphs[0].edges) == sorted(graphs[1].edges)


def check_that_reads_survive(
    process: subprocess.Popen[str], urls: list[str], position: SourcePosition
) -> None:
    with proxy(*urls) as url:
        refused = httpx.post(f"{url}/graphs/{GRAPH}/batches", json={"insert": [["a", "b"]]})
        assert refused.status_code == 405
        readers = Readers(url, str(position))
        with readers.reading():
            wait_for(lambda: len(set(readers.versions)) == 2)  # both are read
            process.kill()
            process.wait()
            before = len(readers.versions)
            wait_for(lambda: len(readers.versions) > before + 300)
    assert readers.failures == []
    assert len(readers.cut) <= THREADS  # those that were being sent when it was killed
