"""The calls about API keys, and about the server itself."""

from __future__ import annotations

from collections.abc import Sequence

from liverank.choices import Scope
from liverank.client.call import Call, member, nothing, operation, path_of, read, write, yes
from liverank.client.responses import ApiKeyInfo, NewApiKey


class OperationCalls:
    """A part of Calls."""

    @operation
    def keys(self) -> Call[list[ApiKeyInfo]]:
        """All API keys, without their texts."""
        return read("/keys", member("keys", list[ApiKeyInfo]))

    @operation
    def create_key(
        self, name: str, scope: Scope, graphs: Sequence[str] | None = None
    ) -> Call[NewApiKey]:
        """Creates an API key for the graphs (None: all); its text, `key`, is shown only now."""
        body = {"name": name, "scope": scope, "graphs": graphs}
        return write("POST", "/keys", body, NewApiKey)

    @operation
    def revoke_key(self, identity: str) -> Call[None]:
        """Removes the API key with this id."""
        return Call(method="DELETE", path=path_of("keys", identity), parse=nothing)

    @operation
    def alive(self) -> Call[bool]:
        """Whether the server's process responds; one attempt, and no error."""
        return Call(method="GET", path="/livez", parse=yes, otherwise=False)

    @operation
    def ready(self) -> Call[bool]:
        """Whether the server is ready; one attempt, and no error."""
        return Call(method="GET", path="/readyz", parse=yes, otherwise=False)

    @operation
    def metrics(self) -> Call[str]:
        """Counters and gauges in the text format of Prometheus."""
        return read("/metrics", bytes.decode)
