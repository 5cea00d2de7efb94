"""What a request asks for, whatever the form of its target: absolute, or without the ``/v1`` of APIs."""

from __future__ import annotations

import re
from typing import Any

from draftwood.serve.meanings import CHAT, COUNT, EMBEDDINGS, MESSAGES, RESPONSES, TEXT

_ABSOLUTE = re.compile(r"https?://([^/?#]*)", re.IGNORECASE)
_MODELS = "/v1/models"
_SHORT = {path.removeprefix("/v1"): path for path in (CHAT, TEXT, RESPONSES, MESSAGES, COUNT, EMBEDDINGS, _MODELS)}


def plain(scope: Any) -> Any:
    """Return an HTTP request in the one form that routes know.

    Proxies may ask for ``http://host/path`` (RFC 9112, 3.2.2); the host is then one more ``Host`` to be checked.
    ``HEAD`` is as ``GET``: servers leave the body out.
    """
    path, headers = scope["path"], scope["headers"]
    if (found := _ABSOLUTE.match(path)) is not None:
        host = found[1].rpartition("@")[2]
        path, headers = path[found.end() :] or "/", [*headers, (b"host", host.encode())]
    if path.startswith("/models/"):
        path = f"/v1{path}"
    method = "GET" if scope["method"] == "HEAD" else scope["method"]
    return {**scope, "method": method, "path": _SHORT.get(path, path), "headers": headers}
