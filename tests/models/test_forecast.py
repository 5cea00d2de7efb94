"""What is said of a model before it is loaded is what it turns out to be once it is."""

from __future__ import annotations

import pytest
from tests.engines.cpu.tiny_families import TINY, build, tensors_of, write

from draftwood.engines.cpu.code.cells import PAGE
from draftwood.engines.cpu.model import CpuModel
from draftwood.errors import UsageError
from draftwood.local import memory_speed
from draftwood.local.machine import cores
from draftwood.models import forecast as room
from draftwood.models.forecast import forecast

NAMES = ("llama", "lfm2", "qwen3moe", "gpt-oss", "qwen35", "granitehybrid", "glm4-flash", "deepseek2-old")


@pytest.fixture
def file(tmp_path):
    def make(name, keys=None, **more):
        model = build(name)
        tensors = tensors_of(name, model) | more
        return write(tmp_path / f"{name}.gguf", name, tensors, model.config, keys=keys, vocabulary=True)

    return make


@pytest.mark.parametrize("name", NAMES)
def test_what_a_token_reads_and_takes(file, name):
    path = file(name)
    found, model = forecast(str(path)), CpuModel(path, threads=1)
    shape, weights = model.weights.shape, model.weights
    chosen = shape.used / shape.experts if shape.experts else 1
    read = weights.output.packed.nbytes
    for blocks in weights.layers:
        for block in blocks:
            for what, matrix in block.matrices.items():
                is_chosen = type(block).__name__ == "Experts" and what in ("ffn_gate", "ffn_up", "ffn_down")
                read += matrix.packed.nbytes * (chosen if is_chosen else 1)
    assert found.read == pytest.approx(read, rel=0.08), "vectors are few, and packed matrices are padded"
    assert found.needed == pytest.approx(weights.nbytes, rel=0.08)
    assert found.context == model.program.cell_bytes // PAGE
    room = model._room
    assert found.states == (0 if room is None else 2 * room.new_state().inputs.nbytes)
    assert (found.model, found.engine, found.reason, found.kind) == (TINY[name].architecture, "cpu", None, "F32")


def test_nothing_is_compiled_to_tell_of_a_file(file, monkeypatch):
    monkeypatch.setattr("draftwood.engines.cpu.code.kernels.compiled", lambda *_: pytest.fail("it is compiled"))
    assert forecast(str(file("llama"))).engine == "cpu"


def test_tables_of_which_a_token_reads_a_row_and_layers_for_further_tokens_are_not_read(file, tmp_path):
    path = file("llama")
    from draftwood.engines.files.gguf_file import GgufFile

    file_ = GgufFile(path)
    kind, tensors = file_.metadata["general.architecture"], file_.tensors
    plain = room._read(tensors, file_.metadata)
    table = {"per_layer_token_embd.weight": tensors["token_embd.weight"]}
    assert room._read(tensors | table, file_.metadata) == plain
    layers = file_.metadata[f"{kind}.block_count"]
    ahead = room._read(tensors, file_.metadata | {f"{kind}.nextn_predict_layers": 1})
    last = [one for name, one in tensors.items() if name.startswith(f"blk.{layers - 1}.")]
    assert plain - ahead == sum(map(room._size, last))


def test_a_model_that_our_own_engine_does_not_run(file, monkeypatch):
    path = file("llama", **{"blk.0.attn_odd.weight": tensors_of("llama", build("llama"))["blk.0.attn_q.weight"]})
    found = forecast(str(path))
    assert (found.engine, found.context) == ("llama.cpp", None)
    assert "does not know the tensor blk.0.attn_odd.weight" in found.reason
    assert found.read > 0
    monkeypatch.setattr(room, "is_installed", lambda engine: engine == "cpu")
    assert forecast(str(path)).engine is None


ODD = [
    {"nextn_predict_layers": 1, "block_count": "x"},
    {"nextn_predict_layers": [1, 1]},
    {"expert_gating_func": [1, 1]},
    {"expert_used_count": 60},
]


@pytest.mark.parametrize("keys", ODD)
def test_odd_metadata_are_a_reason(file, keys):
    found = forecast(str(file("qwen3moe", keys)))
    assert found.reason is not None
    assert found.engine != "cpu"
    assert found.read <= found.needed


def test_a_model_that_does_not_fit(file, monkeypatch):
    monkeypatch.setattr("draftwood.engines.cpu.weights.free_memory", lambda **_: 1000)
    found = forecast(str(file("llama")))
    assert found.engine is None
    assert "take a smaller file" in found.reason


def test_a_folder_and_a_name_of_the_hub(tmp_path):
    with pytest.raises(UsageError, match="run draftwood pull some-owner/some-model, which brings it"):
        forecast("some-owner/some-model")
    model = build("llama")
    model.save_pretrained(tmp_path / "folder")
    found = forecast(tmp_path / "folder")  # without a tokenizer
    assert (found.engine, found.weights > 0) == ("transformers", True)


def test_memory_speed_is_measured_once_where_nothing_else_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("draftwood.local.findings.folder", lambda: tmp_path)
    speeds, others = iter((7, 8, 9)), [""]
    monkeypatch.setattr(memory_speed, "measured", lambda *_: next(speeds))
    monkeypatch.setattr(memory_speed.Others, "busy", lambda *_: others[-1])
    others.append("others are busy")
    assert memory_speed.memory_speed(2) == 7
    others.append("")
    assert [memory_speed.memory_speed(2) for _ in range(3)] == [8, 8, 8]
    assert memory_speed.memory_speed(1) == 9


def test_nothing_fails_where_it_cannot_be_measured_early(tmp_path, monkeypatch):
    monkeypatch.setattr("draftwood.local.findings.folder", lambda: tmp_path)
    outcomes = [lambda: 7, lambda: 1 // 0]  # the last one first
    monkeypatch.setattr(memory_speed, "measured", lambda *_: outcomes.pop()())
    for known in (None, 7, 7):  # the last time it is known, and not measured again
        memory_speed.measure_early()
        assert memory_speed.known_speed(cores()) == known


def test_the_quickest_of_several_readings_counts():
    ticks = iter([0, 4, 4, 5, 5, 9, 9, 12, 12, 15, 15, 18])
    assert memory_speed.measured(2, 1 << 16, clock=lambda: next(ticks)) == 1 << 16
