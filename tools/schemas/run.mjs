// node run.mjs [OUTPUTS] [ENGINE,...] [LIBRARY,...]: the table of docs/structured-output.md. README.md has the installation.
import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';

const python = process.env.PYTHON ?? 'python3';
const libraries = {
  zod: ['node', 'zod.mjs'],
  valibot: ['node', 'valibot.mjs'],
  typebox: ['node', 'typebox.mjs'],
  arktype: ['node', 'arktype.mjs'],
  effect: ['node', 'effect.mjs'],
  pydantic: [python, 'pydantic_types.py'],
  msgspec: [python, 'msgspec_types.py'],
  go: ['go', 'run', '-C', 'go-types', '.'],
  rust: ['cargo', 'run', '-q', '--manifest-path', 'rust-types/Cargo.toml'],
};
const engines = {
  kvasir: ['node', 'engine-kvasir.mjs'],
  xgrammar: [python, 'engines.py', 'xgrammar'],
  llguidance: [python, 'engines.py', 'llguidance'],
  'outlines-core': [python, 'engines.py', 'outlines-core'],
  'node-llama-cpp': ['node', 'engine-node-llama-cpp.mjs'],
};
const [count = '300', engineNames = Object.keys(engines).join(), libraryNames = Object.keys(libraries).join()] =
  process.argv.slice(2);

/** The lines that a program writes for lines. */
function ask([program, ...words], lines, mayEnd = false) {
  return new Promise((resolve) => {
    const child = execFile(program, words, { maxBuffer: 2 ** 30 }, (error, out, err) => {
      if (error !== null && !mayEnd) throw new Error(`${words.join(' ')}: ${err.slice(-2000)}`);
      resolve(out.split('\n').filter((line) => line.startsWith('{')).map((line) => JSON.parse(line)));
    });
    child.stdin.on('error', () => undefined);
    child.stdin.end(lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
  });
}

/** An engine that crashes or does not end has refused this case, and goes on with the next. */
async function answersOf(name, cases) {
  const answers = [];
  while (answers.length < cases.length) {
    const rest = cases.slice(answers.length);
    const found = await ask([...engines[name], count], rest, true);
    answers.push(...found);
    if (answers.length < cases.length) {
      const { library, name: type } = cases[answers.length];
      answers.push({ library, name: type, outputs: [], forbidden: [], refused: 'it crashed, or did not end' });
    }
  }
  return answers;
}

/** Types whose schema says less than the type: what the library refuses beyond its schema is no fault of an engine. */
const less = JSON.parse(readFileSync('says-less.json', 'utf8'));
const cases = (await Promise.all(libraryNames.split(',').map((name) => ask(libraries[name], [])))).flat();
mkdirSync('results', { recursive: true });
for (const engine of engineNames.split(',')) {
  const answers = await answersOf(engine, cases);
  for (const library of libraryNames.split(',')) {
    const own = answers.filter((answer) => answer.library === library);
    const judged = await ask([...libraries[library], 'judge'], own.map(({ name, outputs }) => ({ name, outputs })));
    for (const [i, answer] of own.entries()) answer.wrong = judged[i].wrong;
  }
  const short = answers.map(({ outputs, wrong, ...rest }) => ({
    ...rest,
    outputs: outputs.length,
    wrong: wrong.length,
    examples: wrong.slice(0, 3),
  }));
  writeFileSync(`results/${engine}.jsonl`, short.map((line) => `${JSON.stringify(line)}\n`).join(''));
}

const rows = Object.keys(engines).filter((engine) => existsSync(`results/${engine}.jsonl`)).flatMap((engine) => {
  const answers = readFileSync(`results/${engine}.jsonl`, 'utf8').trim().split('\n').map((line) => JSON.parse(line));
  const count = (own, isSo) => own.filter(isSo).length;
  return Object.keys(libraries).map((library) => {
    const own = answers.filter((answer) => answer.library === library);
    return {
      engine,
      library,
      types: own.length,
      refused: count(own, ({ refused }) => refused !== undefined),
      wrong: count(own, ({ name, wrong }) => wrong > 0 && !less[library]?.includes(name)),
      forbidden: count(own, ({ forbidden, refused }) => forbidden.length > 0 && refused === undefined),
    };
  });
});
console.table(rows);
