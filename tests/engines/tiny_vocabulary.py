"""Small vocabularies in GGUF files without weights."""

from gguf import GGUFWriter, TokenType

from tests.engines.tiny_gguf import written

SENTENCEPIECE = (
    ("<unk>", TokenType.UNKNOWN),
    ("<s>", TokenType.CONTROL),
    ("</s>", TokenType.CONTROL),
    *((f"<0x{byte:02X}>", TokenType.BYTE) for byte in range(256)),
    *((text, TokenType.NORMAL) for text in ("▁", "a", "b", "▁a", "▁b", "ab", "▁ab")),
    ("<tool>", TokenType.USER_DEFINED),
    ("[PAD1]", TokenType.UNUSED),
    ("[PAD2]", TokenType.UNUSED),
)


def write_vocabulary(
    path, tokens=SENTENCEPIECE, *, model="llama", pre="default", merges=(), scores=None, template=None, **settings
):
    """Write a file of llama's architecture; ``settings`` are named as the writer's methods."""
    writer = GGUFWriter(path, "llama")
    sizes = {
        "context_length": 64,
        "embedding_length": 8,
        "block_count": 1,
        "head_count": 1,
        "feed_forward_length": 8,
    }
    for name, value in (sizes | {"layer_norm_rms_eps": 1e-5} | settings).items():
        getattr(writer, f"add_{name}")(value)
    writer.add_tokenizer_model(model)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([text for text, _ in tokens])
    writer.add_token_types([kind for _, kind in tokens])
    writer.add_token_scores(scores or [-float(number) for number in range(len(tokens))])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    if merges:
        writer.add_token_merges(merges)
    if template is not None:
        writer.add_chat_template(template)
    return written(writer, path)
