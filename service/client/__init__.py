"""The Python client of a liverank server. It imports nothing else of the service."""

from service.client.client import DEFAULT_URL, Client
from service.client.errors import ClientError, ServerError, ServerUnreachable
from service.client.types import Key, PersonalizedQuery, RankedVertex, Receipt

__all__ = [
    "DEFAULT_URL",
    "Client",
    "ClientError",
    "Key",
    "PersonalizedQuery",
    "RankedVertex",
    "Receipt",
    "ServerError",
    "ServerUnreachable",
]
