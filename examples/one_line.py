"""A script that uses transformers, and the one argument that makes it draft: same texts, here of a batch of two.

python examples/one_line.py
"""

import torch

import draftwood

model, tokenizer = draftwood.load("smollm2", engine="transformers")
tokenizer.padding_side = "left"
questions = ["Repeat: red, green, blue, red, green, blue.", "Count from one to twenty in words."]
chats = [[{"role": "user", "content": question}] for question in questions]
inputs = tokenizer.apply_chat_template(
    chats, add_generation_prompt=True, return_tensors="pt", return_dict=True, padding=True
)

plain = model.generate(**inputs, max_new_tokens=40, do_sample=False)
decode = draftwood.decode_with()
drafted = model.generate(**inputs, max_new_tokens=40, do_sample=False, custom_generate=decode)

assert torch.equal(plain, drafted)
for ids, generation in zip(drafted, decode.generations, strict=True):
    print(tokenizer.decode(ids[inputs["input_ids"].shape[1] :], skip_special_tokens=True))
    print(f"  {len(generation.ids)} tokens in {1 + len(generation.steps)} passes")
