"""The one line: the same text from a transformers model, faster.

python examples/plain_script.py
"""

import draftwood

model, tokenizer = draftwood.load("smollm2")  # any supported model that you loaded with transformers will do

messages = [{"role": "user", "content": "Correct the grammar: she go to school every days, and he go too."}]
answer = draftwood.generate(model, messages, tokenizer=tokenizer, max_new_tokens=64)

print(answer.text)
print(
    f"{len(answer.ids)} tokens in {1 + answer.stats.passes} passes, "
    f"mean acceptance length {answer.stats.mean_acceptance_length:.2f}"
)
