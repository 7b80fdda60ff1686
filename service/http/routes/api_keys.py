"""API keys: list, create, revoke; all of it takes effect at once."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from service.http.access import access_of
from service.http.parameters import body_of, json_answer, parse_body, problems, read_body
from service.http.route import DirectRoute
from service.http.schemas import KeyList, KeyRequest, NewKey
from service.storage.api_keys import ApiKey

log = logging.getLogger("liverank.keys")

router = APIRouter(tags=["keys"], route_class=DirectRoute)


def _describe(key: ApiKey) -> dict[str, Any]:
    graphs = None if key.graphs is None else list(key.graphs)
    return {
        "id": key.id,
        "name": key.name,
        "scope": key.scope,
        "graphs": graphs,
        "created": key.created,
    }


def _who(request: Request) -> str:
    key: ApiKey | None = request.state.key
    return "nobody" if key is None else key.id


@router.get("/keys", response_model=KeyList, responses=problems())
async def list_keys(request: Request) -> Response:
    """All keys, the oldest first; their texts are not kept."""
    return json_answer({"keys": [_describe(key) for key in access_of(request).keys.listed()]})


@router.post(
    "/keys",
    status_code=201,
    response_model=NewKey,
    responses=problems(408, 413, 415, 422),
    openapi_extra=body_of(KeyRequest),
)
async def create_key(request: Request) -> Response:
    """Makes a key. Its text is in this answer and nowhere else."""
    wanted = parse_body(KeyRequest, await read_body(request))
    keys = access_of(request).keys
    key, text = await asyncio.to_thread(keys.create, wanted.name, wanted.scope, wanted.graphs)
    log.info(
        "a key is created",
        extra={"key": key.id, "scope": key.scope, "graphs": key.graphs, "by": _who(request)},
    )
    return json_answer({**_describe(key), "key": text}, 201)


@router.delete("/keys/{id}", status_code=204, responses=problems(404, 409))
async def revoke_key(
    request: Request, identity: Annotated[str, Path(alias="id", description="of the key")]
) -> Response:
    """Ends a key: no request is let in with it any more."""
    await asyncio.to_thread(access_of(request).keys.revoke, identity)
    log.info("a key is revoked", extra={"key": identity, "by": _who(request)})
    return Response(status_code=204)
