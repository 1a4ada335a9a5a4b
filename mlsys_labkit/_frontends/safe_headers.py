"""Headers of every answer of a Jupyter server or a JupyterHub, also of static files and errors.

For the configuration of a server::

    c.ServerApp.tornado_settings = {"transforms": [SafeHeaders]}

The setting "headers" does not reach static files, and removes no header.
"""

from __future__ import annotations

from tornado.httputil import HTTPHeaders, HTTPServerRequest
from tornado.web import OutputTransform

_VERSIONS = ("Server", "X-JupyterHub-Version")


class SafeHeaders(OutputTransform):
    """Transform of tornado's answers that adds headers for browsers and hides versions.

    The Hub and its servers compare versions with each other. They ask each other directly: only answers to requests
    that came through a proxy hide them.
    """

    def __init__(self, request: HTTPServerRequest) -> None:
        super().__init__(request)
        given = request.headers
        self._is_proxied = "X-Forwarded-For" in given
        self._has_tls = given.get("X-Forwarded-Proto", request.protocol).split(",")[0].strip() == "https"

    def transform_first_chunk(
        self, status_code: int, headers: HTTPHeaders, chunk: bytes, finishing: bool
    ) -> tuple[int, HTTPHeaders, bytes]:
        headers["X-Content-Type-Options"] = "nosniff"
        headers["Referrer-Policy"] = "same-origin"
        headers.setdefault("Content-Security-Policy", "frame-ancestors 'self'")
        if self._has_tls:
            headers["Strict-Transport-Security"] = "max-age=31536000"
        for name in _VERSIONS if self._is_proxied else ():
            headers.pop(name, None)
        return status_code, headers, chunk
