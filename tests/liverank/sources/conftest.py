"""Brokers that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.liverank.sources.brokers import (
    Process,
    kafka_broker,
    nats_server,
    rabbitmq_server,
    redis_server,
)


@pytest.fixture(scope="package")
def redis_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with redis_server(tmp_path_factory.mktemp("redis")) as started:
        yield started


@pytest.fixture(scope="package")
def nats_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with nats_server(tmp_path_factory.mktemp("nats")) as started:
        yield started


@pytest.fixture(scope="package", name="kafka_broker")
def kafka() -> Iterator[Process]:
    with kafka_broker() as started:
        yield started


@pytest.fixture(scope="package")
def rabbitmq_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with rabbitmq_server(tmp_path_factory.mktemp("rabbitmq")) as started:
        yield started
