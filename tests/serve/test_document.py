"""The OpenAPI document tells of every route what it answers, errors among it."""

from __future__ import annotations

import httpx2 as httpx
import pytest


@pytest.fixture(scope="module")
def document(url):
    return httpx.get(f"{url}/openapi.json").json()


def test_every_route_answers_errors_with_the_error_object(document):
    for routes in document["paths"].values():
        for route in routes.values():
            assert set(route["responses"]) == {"200", "4XX", "5XX"}
            (said,) = route["responses"]["4XX"]["content"].values()
            assert said["schema"] == {"$ref": "#/components/schemas/Failure"}


def test_routes_that_write_answer_objects_and_streams(document):
    for path, kind in (
        ("/v1/chat/completions", "ChatCompletion"),
        ("/v1/completions", "TextCompletion"),
        ("/v1/responses", "ResponseObject"),
    ):
        content = document["paths"][path]["post"]["responses"]["200"]["content"]
        assert content["application/json"]["schema"] == {"$ref": f"#/components/schemas/{kind}"}
        assert set(content) == {"application/json", "text/event-stream"}


def test_what_is_answered_is_what_the_document_says(client):
    from draftwood.serve.document import ChatCompletion, Failure, Models, ResponseObject, TextCompletion

    given = {"model": "tiny", "max_tokens": 2}
    chat = client.chat.completions.with_raw_response.create(messages=[{"role": "user", "content": "a"}], **given)
    ChatCompletion.model_validate_json(chat.text)
    TextCompletion.model_validate_json(client.completions.with_raw_response.create(prompt="a", **given).text)
    responses = client.responses.with_raw_response.create(model="tiny", input="a", max_output_tokens=2)
    ResponseObject.model_validate_json(responses.text)
    Models.model_validate_json(client.models.with_raw_response.list().text)
    Failure.model_validate(httpx.get(f"{client.base_url}nothing").json())
