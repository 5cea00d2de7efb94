"""Two copies of the server behind Ray Serve, on this machine: docs/server.md#many-copies.

pip install "ray[serve]" ".[transformers,serve]" openai
python examples/ray_serve.py
"""

import re
from concurrent.futures import ThreadPoolExecutor

import ray
from openai import OpenAI
from ray import serve

MODEL = "smollm2"
RUNNING, WAITING = 16, 64  # texts of each copy
ROOM = RUNNING + WAITING + 16  # requests of each copy: one too many gets the copy's own 429, and /health an answer


def build():
    """Return the server of one copy. Ray calls this in the copy's own process, and runs the worker with it."""
    from draftwood.api.setup import Setup
    from draftwood.serve.app import Settings, make_app

    setup = Setup(MODEL, None, "default", "goodput")
    return make_app(setup, Settings(MODEL, most_running=RUNNING, most_waiting=WAITING))


@serve.deployment(num_replicas=2, max_ongoing_requests=ROOM, ray_actor_options={"num_cpus": 1})
@serve.ingress(build)
class Draftwood:
    async def metrics(self):
        """Return what this copy counts: Ray's proxy would ask any one of them."""
        (route,) = (route for route in self.app.routes if route.path == "/metrics")
        return (await route.endpoint()).body.decode()


app = Draftwood.bind()


def main():
    ray.init(num_cpus=2, include_dashboard=False)
    serve.start(http_options={"host": "127.0.0.1", "port": 8000})
    copies = serve.run(app)
    client = OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none")

    def ask(question):
        messages = [{"role": "user", "content": question}]
        answer = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=48, temperature=0)
        return answer.choices[0].message.content

    questions = [f"Name the capital of {country}." for country in ("France", "Japan", "Peru", "Kenya")]
    with ThreadPoolExecutor(4) as clients:
        for question, answer in zip(questions, clients.map(ask, questions), strict=True):
            print(f"{question} {answer}")
    for number, text in enumerate(copies.broadcast("metrics").results(), 1):
        written = re.search(r"^vllm:generation_tokens_total\{.*\} (\S+)$", text, re.MULTILINE)
        print(f"copy {number} has written {float(written[1]):.0f} tokens")
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
