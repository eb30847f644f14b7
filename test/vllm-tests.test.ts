import { existsSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

/** The table in docs/vllm-tests.md names tests; they must be where it says. */
const rows = readFileSync('docs/vllm-tests.md', 'utf8')
  .split('\n')
  .filter((line) => line.startsWith('| ') && !line.startsWith("| vLLM's test"))
  .map((line) => line.replaceAll('\\|', '/').split(' | '));

test('every row of the table has four cells, and every test that it names exists under that name', () => {
  expect(rows.length).toBeGreaterThan(30);
  let texts: string[] = [];
  for (const cells of rows) {
    expect(cells, cells[0]).toHaveLength(4);
    const [name, , , shown] = cells as [string, string, string, string];
    const files = [...shown.matchAll(/`([\w./-]+\.test\.ts)`/g)].map(([, file]) =>
      file!.includes('/') ? file! : `src/scheduler/${file}`,
    );
    for (const file of files) expect(existsSync(file), `${file}, of ${name}`).toBe(true);
    // "The same" is where the row before is.
    if (files.length > 0) texts = files.map((file) => readFileSync(file, 'utf8'));
    const inShown = shown.match(/\b[a-z]+(_[a-z]+)+\b/g);
    const wanted = inShown ?? name.match(/\b[a-z]+(_[a-z]+)+\b/g)?.slice(0, 1) ?? [];
    for (const word of wanted)
      expect(
        texts.some((text) => text.includes(word)),
        `${word}, of ${name}`,
      ).toBe(true);
  }
});
