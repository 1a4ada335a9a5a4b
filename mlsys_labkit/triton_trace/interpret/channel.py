"""Messages between the notebook and its worker: JSON with numpy arrays beside it, never pickle."""

from __future__ import annotations

import io
import json
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray


def send(connection: Connection, message: dict[str, Any], arrays: dict[str, NDArray[Any]] | None = None) -> None:
    buffer = io.BytesIO()
    if arrays:
        np.savez(buffer, **arrays)  # type: ignore[arg-type]
    connection.send_bytes(json.dumps(message).encode())
    connection.send_bytes(buffer.getvalue())


def receive(connection: Connection) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    message: dict[str, Any] = json.loads(connection.recv_bytes())
    data = connection.recv_bytes()
    if not data:
        return message, {}
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return message, dict(arrays)
