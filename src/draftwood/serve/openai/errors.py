"""Errors as the OpenAI API shapes them."""

from __future__ import annotations

import logging
from typing import Any

from draftwood.errors import CapabilityError, DraftwoodError, UsageError
from draftwood.serve.inbox import QueueFullError

log = logging.getLogger("draftwood")

BAD_REQUEST, UNAUTHORIZED, FORBIDDEN, NOT_FOUND, TOO_SLOW, TOO_LARGE = 400, 401, 403, 404, 408, 413
TOO_MANY, GONE, FAILED = 429, 499, 500
_TYPES = {
    UNAUTHORIZED: "authentication_error",
    FORBIDDEN: "permission_error",
    NOT_FOUND: "not_found_error",
    TOO_MANY: "rate_limit_error",
    FAILED: "server_error",
}


class ApiError(DraftwoodError):
    """What a client is told: a status, a sentence, and the field that is wrong.

    Parameters
    ----------
    status
        Of HTTP.
    message
        What is wrong and what to do.
    param
        The field, if one is wrong.
    code
        A word for programs, such as ``model_not_found``.
    """

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code

    @property
    def body(self) -> dict[str, Any]:
        """The API's error object."""
        kind = _TYPES.get(self.status, "invalid_request_error")
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}

    @property
    def headers(self) -> dict[str, str]:
        """What goes with it: when to come again."""
        return {"Retry-After": "1"} if self.status == TOO_MANY else {}


def as_api_error(error: Exception) -> ApiError:
    """Return an error of ours as clients are told; of foreign ones, which may hold anything, the kind alone.

    Foreign ones are logged in full.
    """
    if isinstance(error, ApiError):
        return error
    if isinstance(error, QueueFullError):
        return ApiError(TOO_MANY, str(error), code="queue_full")
    if isinstance(error, UsageError | CapabilityError):
        if "tokens, the model takes" in (said := str(error)):  # agents shorten their texts where they read this
            said = f"this model's maximum context length is exceeded: {said}"
            return ApiError(BAD_REQUEST, said, code="context_length_exceeded")
        return ApiError(BAD_REQUEST, said)
    if isinstance(error, DraftwoodError):
        return ApiError(FAILED, str(error))
    log.error("a request has failed", exc_info=error)
    return ApiError(FAILED, f"the server failed on this request ({type(error).__name__}): see its log")
