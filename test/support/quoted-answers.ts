import { readFileSync } from 'node:fs';

/** A request by curl in a document, and below it a part of its answer. */
export interface QuotedAnswer {
  readonly url: string;
  readonly body: string;
  readonly answer: string;
}

const quoted =
  /^curl http:\/\/127\.0\.0\.1:8000(\S+)[^']*'Content-Type: application\/json'[^']*'([^']+)'\n# \.\.\. (.*) \.\.\.$/gm;

/** Requests for a story are to the bundled model, all others to `hf:Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF:Q4_K_M`. */
export function quotedAnswers(to: 'bundled model' | 'real model'): QuotedAnswer[] {
  return ['README.md', 'docs/api.md', 'docs/structured-output.md'].flatMap((file) =>
    [...readFileSync(file, 'utf8').matchAll(quoted)]
      .map(([, url, body, answer]) => ({ url: url!, body: body!, answer: answer! }))
      .filter(({ body }) => /\bstory\b/.test(body) === (to === 'bundled model')),
  );
}
