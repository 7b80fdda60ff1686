"""API keys: list, create, revoke. Changes take effect at once."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from liverank_service.errors import Unauthorized
from liverank_service.http.access import access_of, key_id
from liverank_service.http.body import parsed_body, read_body
from liverank_service.http.openapi import body_of, problems
from liverank_service.http.responses import json_response
from liverank_service.http.route import Route
from liverank_service.http.schemas import ApiKeyList, ApiKeyRequest, NewApiKey
from liverank_service.http.subscribers import subscribers_of

log = logging.getLogger("liverank.keys")

router = APIRouter(tags=["keys"], route_class=Route)


@router.get("/keys", response_model=ApiKeyList, responses=problems())
async def list_keys(request: Request) -> Response:
    """All keys, the oldest first; their texts are not stored."""
    return json_response({"keys": [key.document() for key in access_of(request).keys.listed()]})


@router.post(
    "/keys",
    status_code=201,
    response_model=NewApiKey,
    responses=problems(408, 413, 415, 422),
    openapi_extra=body_of(ApiKeyRequest),
)
async def create_key(request: Request) -> Response:
    """Creates a key. Its text is only in this response."""
    wanted = await parsed_body(ApiKeyRequest, await read_body(request))
    keys = access_of(request).keys
    key, text = await asyncio.to_thread(keys.create, wanted.name, wanted.scope, wanted.graphs)
    log.info(
        "API key created",
        extra={
            "key": key.id,
            "scope": key.scope,
            "graphs": key.graphs,
            "by": key_id(request) or "nobody",
        },
    )
    return json_response({**key.document(), "key": text}, 201)


@router.delete("/keys/{id}", status_code=204, responses=problems(404, 409, 422))
async def revoke_key(
    request: Request, identity: Annotated[str, Path(alias="id", description="of the key")]
) -> Response:
    """Removes a key; further requests with it are refused, and its streams end."""
    await asyncio.to_thread(access_of(request).keys.revoke, identity)
    subscribers_of(request).end(identity, Unauthorized("the API key was revoked"))
    log.info("API key revoked", extra={"key": identity, "by": key_id(request) or "nobody"})
    return Response(status_code=204)
