import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { loadNative, nullPtr } from './ffi.ts';
import { findNativeLibraries, nativeVersionRange, nativeVersions, remedyFor } from './native-package.ts';

describe('the native libraries', () => {
  it('have a version that fits and every symbol of the table', () => {
    const native = loadNative();
    expect(nativeVersions.map(({ ggml }) => ggml)).toContain(native.ggml_version());
    expect(loadNative()).toBe(native);
  });

  it('load a CPU backend', () => {
    const native = loadNative();
    for (const folder of native.libraries.backendFolders) native.ggml_backend_load_all_from_path(folder);
    expect(native.ggml_backend_dev_name(native.ggml_backend_dev_get(0))).toBe('CPU');
  });

  it('log into memory, not to the terminal', () => {
    const native = loadNative();
    const params = { ...native.llama_model_default_params(), vocab_only: true };
    expect(native.llama_model_load_from_file('/does/not/exist.gguf', params)).toBe(nullPtr());
    expect(native.recentLog().join('\n')).toContain('exist.gguf');
  });

  it('give access to the struct of a tensor', () => {
    const native = loadNative();
    const context = native.ggml_init({ mem_size: 1 << 16, mem_buffer: 0, no_alloc: true });
    const tensor = native.ggml_new_tensor_2d(context, 0, 12, 34);
    const struct = new DataView(native.memoryAt(tensor, 48));
    expect([struct.getBigInt64(16, true), struct.getBigInt64(24, true)]).toEqual([12n, 34n]);
    native.ggml_free(context);
  });

  it('are an error that names the package to install, or says that the platform is not supported', () => {
    expect(() => findNativeLibraries('sunos-sparc')).toThrow(/no native libraries for sunos-sparc/);
    expect(() => findNativeLibraries('darwin-x64')).toThrow(
      'Run: npm install "@node-llama-cpp/mac-x64@3.21.1 - 3.22.1" (these versions of @node-llama-cpp/mac-x64 fit: 3.22.1, 3.22.0, 3.21.1)',
    );
  });

  it('are installed by npm in any version that fits, as errors say', () => {
    const { optionalDependencies } = JSON.parse(readFileSync('package.json', 'utf8')) as {
      readonly optionalDependencies: Readonly<Record<string, string>>;
    };
    expect([...new Set(Object.values(optionalDependencies))]).toEqual([nativeVersionRange]);
    for (const name of Object.keys(optionalDependencies))
      expect(remedyFor(name).command).toBe(`npm install "${name}@${nativeVersionRange}"`);
  });
});
