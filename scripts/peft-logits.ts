/**
 * `node dist/scripts/peft-logits.js PYTHON` writes `test/data/peft-logits.json`: the logits of a small model with and without a LoRA
 * adapter of all matrices, by PEFT. PYTHON has the packages that `tools/lora/peft_logits.py` names.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { assert } from '../src/base/assert.ts';
import { peftPrompt, writePeftFiles } from './real-models/peft-files.ts';

const folder = mkdtempSync(join(tmpdir(), 'kvasir-peft-'));
const { model, adapter } = await writePeftFiles(folder);
const { status, stdout, stderr } = spawnSync(
  process.argv[2] ?? 'python3',
  [join('tools', 'lora', 'peft_logits.py'), model, adapter],
  { input: JSON.stringify(peftPrompt), encoding: 'utf8', maxBuffer: 1 << 26 },
);
rmSync(folder, { recursive: true });
assert(status === 0, stderr);
writeFileSync(join('test', 'data', 'peft-logits.json'), `${stdout}\n`);
