"""Writes a GGUF file with the same weights in F32: python tools/real-models/as_f32.py IN.gguf OUT.gguf"""
import sys

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize

reader = GGUFReader(sys.argv[1])
architecture = reader.fields["general.architecture"].contents()
writer = GGUFWriter(sys.argv[2], architecture)
for name, field in reader.fields.items():
    if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
        continue
    of_elements = field.types[1] if field.types[0] == GGUFValueType.ARRAY else None
    writer.add_key_value(name, field.contents(), field.types[0], of_elements)
for tensor in reader.tensors:
    weights = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
    writer.add_tensor(tensor.name, weights.reshape([int(size) for size in reversed(tensor.shape)]))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
