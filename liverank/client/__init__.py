"""The Python client of a liverank server. It imports nothing else of this project."""

from liverank.client.client import DEFAULT_URL, Client
from liverank.client.types import Key, PersonalizedQuery, RankedVertex, Receipt
from liverank.errors import ClientError, ServerError, ServerUnreachable

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
