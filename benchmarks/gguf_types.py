"""Write a GGUF file's model with weights of another type, for the benches of the llama.cpp engine.

    python benchmarks/gguf_types.py MODEL.gguf FOLDER Q4_0 Q8_0 F16

What a coarser type has lost stays lost: texts differ from those of the original weights, speeds do not.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFReader, GGUFValueType, GGUFWriter, LlamaFileType, quants

FILE_TYPES = {
    "F32": LlamaFileType.ALL_F32,
    "F16": LlamaFileType.MOSTLY_F16,
    "Q4_0": LlamaFileType.MOSTLY_Q4_0,
    "Q4_1": LlamaFileType.MOSTLY_Q4_1,
    "Q5_0": LlamaFileType.MOSTLY_Q5_0,
    "Q8_0": LlamaFileType.MOSTLY_Q8_0,
}


def convert(source: Path, to: Path, name: str) -> None:
    """Write ``source`` with matrices of type ``name``; vectors stay as they are."""
    reader = GGUFReader(source)
    writer = GGUFWriter(to, str(reader.fields["general.architecture"].contents()))
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, sub_type=inner)
    writer.add_file_type(FILE_TYPES[name])
    for tensor in reader.tensors:
        if len(tensor.shape) < 2:
            writer.add_tensor(tensor.name, np.asarray(tensor.data), raw_dtype=tensor.tensor_type)
            continue
        full = quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        kind = Type[name]
        writer.add_tensor(tensor.name, quants.quantize(full, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main(source: str, folder: str, *names: str) -> None:
    """Write one file per type."""
    for name in names:
        to = Path(folder) / f"{Path(source).name.split('.')[0]}.{name}.gguf"
        convert(Path(source), to, name)
        print(to)


if __name__ == "__main__":
    main(*sys.argv[1:])
