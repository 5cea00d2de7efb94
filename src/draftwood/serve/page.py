"""The page on which a plain and a drafted answer race; nothing but its own code can run in it."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_suffix(".html")


@cache
def page() -> tuple[bytes, dict[str, str]]:
    """Return the page, and the headers that it is sent with.

    The content security policy names the digests of its one script and its one style, so that nothing which gets
    into the page by accident can run; it may talk to this server alone.
    """
    body = FILE.read_bytes()
    policy = (
        f"default-src 'none'; script-src {_digest(body, b'script')}; style-src {_digest(body, b'style')}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return body, {
        "Content-Type": "text/html; charset=utf-8",
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }


def _digest(body: bytes, tag: bytes) -> str:
    """Return the digest of the one element of this kind, as policies write it."""
    (content,) = re.findall(rb"<%b>(.*?)</%b>" % (tag, tag), body, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(content).digest()).decode()}'"
