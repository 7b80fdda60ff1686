from tests.service.conftest import server

__all__ = ["server"]
