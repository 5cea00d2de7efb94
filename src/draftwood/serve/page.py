"""The page: a chat, and a race of a plain and a drafted answer; nothing but its own code can run in it."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).with_name("web")
PARTS = {
    "style": ("page", "chat", "race"),
    "script": (
        *("server", "access", "sources", "markdown", "chats", "writing", "chat", "sending"),
        *("examples", "race", "tree", "start"),
    ),
}
"""Files that become the page's one style and its one script, in this order; their ends are .css and .js."""


@cache
def page() -> tuple[bytes, dict[str, str]]:
    """Return the page, and the headers that it is sent with.

    The content security policy names the digests of its one script and its one style, so that nothing which gets
    into the page by accident can run; it may talk to this server alone.
    """
    body, policy = (FOLDER / "page.html").read_bytes(), "default-src 'none'; connect-src 'self'; img-src data:; "
    for (tag, names), end in zip(PARTS.items(), (".css", ".js"), strict=True):
        content = b"\n".join((FOLDER / (name + end)).read_bytes() for name in names)
        body = body.replace(f"<{tag}></".encode(), f"<{tag}>".encode() + content + b"</")
        policy += f"{tag}-src 'sha256-{base64.b64encode(hashlib.sha256(content).digest()).decode()}'; "
    return body, {
        "Content-Type": "text/html; charset=utf-8",
        "Content-Security-Policy": policy + "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }
