"""A server that answers with what a test prepares, and records the requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx

from liverank import Client

Handler = Callable[[httpx.Request], httpx.Response]

RECEIPT: dict[str, Any] = {
    "fallback": None,
    "refused": None,
    "views": {},
    "view_seconds": {},
    "version": 1,
    "ranked_version": 1,
    "revision": 2,
    "inserted": 2,
    "already_present": 0,
    "reweighted": 0,
    "deleted": 0,
    "not_found": 0,
    "lowered": 0,
    "removed": 0,
    "removed_edges": 0,
    "unknown": 0,
    "expired": 0,
    "new_vertices": 3,
    "strategy": "residual",
    "iterations": 1,
    "touched_vertices": 3,
    "error_bound": 1e-7,
    "converged": True,
    "seconds": {"total": 0.1},
    "form": "accelerated",
    "trace": None,
    "settled": None,
    "settled_set": None,
}
TOP: dict[str, Any] = {"version": 1, "revision": 2, "error_bound": 0.0, "ranks": []} | {
    "rank_error": 0.0,
    "settled": 0,
    "settled_set": True,
    "groups": [],
    "ties": [],
}


def client_of(handler: Handler) -> Client:
    return Client("http://liverank.test", transport=httpx.MockTransport(handler))


class Recorder:
    """Answers each request with the next prepared response, and records the requests."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def answer(document: Any, status: int = 200) -> httpx.Response:
    return httpx.Response(status, json=document)
