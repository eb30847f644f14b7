import { expect, it } from 'vitest';
import { flagsByCommand } from '../../test/support/commands.ts';
import { runHere } from '../../test/support/run-here.ts';
import { peerCommands, peerFlags } from './peer-names.ts';

const commands = flagsByCommand();
const ofEngines = ['serve', 'generate', 'chat'];

it.each([
  ['serve m.gguf -ngl 99', 'Write --gpu-layers <n|all|auto>.'],
  ['serve m.gguf -c 4096', 'Write --max-model-len <tokens>.'],
  ['serve m.gguf --ctx-size=4096', 'Write --max-model-len <tokens>.'],
  ['serve m.gguf --tensor-parallel-size 2', '--pipeline-parallel-size divides its layers'],
  ['serve m.gguf --gpu-memory-utilization 0.9', 'Write --kv-cache-memory <bytes>. It is the size of the KV pool'],
  ['serve m.gguf --enable-auto-tool-choice', 'Kvasir does so always. Remove the flag.'],
  ['serve -m m.gguf', 'kvasir serve model.gguf'],
  ['serve --model m.gguf', 'kvasir serve model.gguf'],
  ['serve -hf a/b:Q8_0', 'kvasir serve hf:owner/repository:Q8_0'],
  ['generate -m m.gguf', 'Write --model <model>.'],
  ['generate -n 5', 'Write --max-tokens <n>.'],
  ['-m m.gguf', 'kvasir serve MODEL'],
  ['-ngl 99', 'kvasir serve MODEL --gpu-layers ...'],
  ['run llama3', 'kvasir chat MODEL'],
  ['ps', '/api/ps'],
  ['stop', 'Ctrl-C'],
  ['version', 'kvasir --version'],
  ['m.gguf', 'kvasir serve m.gguf'],
  ['hf:a/b', 'kvasir serve hf:a/b'],
])('a name of another program gets a hint: kvasir %s', async (line, hint) => {
  const { code, stderr } = await runHere(line.split(' '));
  expect([code, stderr]).toEqual([2, expect.stringContaining(hint)]);
  // One line, and commander's own.
  expect(stderr.trim().split('\n')).toHaveLength(2);
});

it('other names keep the hint of commander', async () => {
  expect((await runHere(['serve', '--kv-cache-memry', '4GiB'])).stderr).toContain('(Did you mean --kv-cache-memory?)');
  expect((await runHere(['list', '-ngl', '9'])).stderr).toBe(
    "error: unknown option '-ngl'\n(--help shows the options)\n",
  );
});

it('names no flag of Kvasir as one of another program, and only flags of Kvasir as hints', () => {
  const known = new Set([...commands.values()].flatMap((flags) => [...flags]));
  const ofServe = commands.get('serve')!;
  const names = peerFlags.flatMap((peer) => peer.names.split(' '));
  expect(new Set(names).size).toBe(names.length);
  // `--model` is a flag of other commands.
  const ours = names.filter((name) => ofServe.has(name));
  expect(ours).toEqual([]);
  const texts = [...peerFlags.map(({ flag = '', hint = '' }) => `${flag} ${hint}`), ...peerCommands.values()];
  const flags = texts.flatMap((text) => text.match(/--[a-z][a-z-]+/g) ?? []);
  expect(flags.filter((flag) => !known.has(flag) && flag !== '--version')).toEqual([]);
  expect([...peerCommands.keys()].filter((name) => commands.has(name))).toEqual([]);
});

it('a name of a model that is no file names the form of Hugging Face', async () => {
  for (const model of ['llama3', 'qwen3:8b'])
    for (const args of [
      ['serve', model],
      ['serve', model, 'other'],
      ['chat', model],
      ['generate', '--model', model, '--prompt', 'x'],
    ]) {
      const { code, stderr } = await runHere(args);
      expect([args, code, stderr]).toEqual([args, 2, expect.stringContaining('like hf:Qwen/Qwen3-0.6B-GGUF:Q8_0')]);
    }
});

it.each(ofEngines)('kvasir %s --help shows the flags that a newcomer needs, and --help-all shows all', async (name) => {
  const shown = async (flag: string) =>
    new Set((await runHere([name, flag])).stdout.match(/(?<=^ {2}(-h, )?)--[a-z-]+/gm) ?? []);
  const [first, all] = [await shown('--help'), await shown('--help-all')];
  const flags = new Set([...commands.get(name)!, '--help']);
  expect(all).toEqual(flags);
  expect([first.size <= (name === 'serve' ? 35 : 40), first.has('--help-all'), first.has('--kv-cache-memory')]).toEqual(
    [true, true, true],
  );
  expect([...first].filter((flag) => !all.has(flag))).toEqual([]);
  expect([all.has('--block-size'), first.has('--block-size')]).toEqual([true, false]);
});

it('bytes without a unit that are hardly meant so are refused, and the message says what they are', async () => {
  for (const flag of ['--kv-cache-memory', '--models-memory', '--max-body-size']) {
    const { code, stderr } = await runHere(['serve', flag, '4']);
    expect([code, stderr]).toEqual([
      2,
      expect.stringMatching(/number of bytes, so 4 is less than 1 KiB.*4GiB or 4MiB/),
    ]);
  }
});
