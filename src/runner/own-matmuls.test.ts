import { describe, expect, it } from 'vitest';
import type { GgufTensor } from '../ggml/gguf.ts';
import { F16, F32, type GgmlType, ggmlTypes, Q8_0 } from '../ggml/types.ts';
import { otherMatrices } from './own-matmuls.ts';

const bf16 = [...ggmlTypes.values()].find(({ name }) => name === 'BF16')!;

const tensor = (name: string, type: GgmlType, ...ne: number[]): GgufTensor =>
  ({ name, type, ne: [ne[0] ?? 1, ne[1] ?? 1, ne[2] ?? 1] }) as unknown as GgufTensor;

const model = [
  tensor('token_embd.weight', Q8_0, 256, 1000),
  tensor('blk.0.attn_q.weight', F16, 256, 256),
  tensor('blk.0.attn_norm.weight', F32, 256),
  tensor('blk.0.ffn_gate_inp.weight', F32, 256, 8),
  tensor('blk.0.ffn_gate_exps.bias', F32, 256, 8),
  tensor('blk.0.ssm_conv1d.weight', F32, 4, 512),
  tensor('blk.0.ssm_a', F32, 1, 8),
  tensor('rope_freqs.weight', F32, 64),
];
const fits = ({ type }: GgufTensor): boolean => type === Q8_0 || type === F16;

describe('a model', () => {
  it('whose matrices all have a kernel has only own matmuls', () => {
    expect(otherMatrices(model, fits)).toEqual([]);
  });

  it.each([
    tensor('blk.0.attn_k.weight', bf16, 256, 64),
    tensor('blk.0.attn_k.weight', F32, 256, 64),
    tensor('blk.0.ssm_alpha.weight', F32, 256, 16),
    tensor('blk.1.ffn_gate_inp.weight', F32, 200, 8),
    tensor('blk.1.ffn_gate_inp_shexp.weight', F32, 200),
    tensor('output.weight', F32, 256, 1000),
  ])('with $name of other types or shapes has other matmuls', (other) => {
    expect(otherMatrices([...model, other], fits)).toEqual([other]);
  });
});
