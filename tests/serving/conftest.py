"""Fixtures of the serving tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from mlsys_labkit.serving import Engine
from mlsys_labkit.serving.scheduler import Limits
from mlsys_labkit.serving.server.job import Served
from tests.serving.endpoint import CODEC, MODEL
from tests.serving.running import Running

if TYPE_CHECKING:
    import openai


@pytest.fixture(scope="session")
def tiny() -> Iterator[Running]:
    engine = Engine(MODEL, blocks=256, limits=Limits(running=8))
    with Running(engine, Served("mlsys-tiny", CODEC, MODEL.config.context, MODEL.config.vocabulary)) as running:
        yield running


@pytest.fixture(scope="session")
def client(tiny: Running) -> Iterator[openai.OpenAI]:
    import openai

    with openai.OpenAI(base_url=f"{tiny.url}/v1", api_key="none", max_retries=0, timeout=600) as client:
        yield client
