import { expect, it } from 'vitest';
import { loadNative } from './ffi.ts';
import { ggmlTypes, rowBytes } from './types.ts';

it('the table of types equals the types of the library', () => {
  const native = loadNative();
  for (const type of ggmlTypes.values()) {
    expect({
      ...type,
      name: native.ggml_type_name(type.id).toUpperCase(),
      blockSize: native.ggml_blck_size(type.id),
      typeSize: native.ggml_type_size(type.id),
    }).toEqual({ ...type, name: type.name.toUpperCase() });
    expect(rowBytes(type, 4 * type.blockSize)).toBe(native.ggml_row_size(type.id, 4 * type.blockSize));
  }
});
