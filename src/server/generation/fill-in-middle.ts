import type { AsyncEngine } from '../../engine/contract.ts';
import { fieldNotSupported } from '../http/server-errors.ts';
import { tokenizeText } from './generation.ts';

/** A text with a gap. */
export interface TextWithGap {
  readonly prompts: readonly (string | Int32Array)[];
  readonly addSpecial: boolean;
  /** The text behind the gap that the model fills. Absent: there is no gap. */
  readonly suffix?: string;
  /** Other files or parts of files, which the text may refer to. */
  readonly extra?: readonly ExtraText[];
  /** The field of the suffix; by default its name in completions. */
  readonly suffixField?: string;
}

export interface ExtraText {
  readonly name: string;
  readonly text: string;
}

interface GapToFill extends TextWithGap {
  readonly params: { readonly maxTokens?: number };
}

/**
 * The prompts of a completion. With a `suffix`, the model fills the gap between prompt and suffix. The order is that of the models'
 * training: prefix, suffix, middle.
 *
 *     extra? BOS? <prefix> prompt <suffix> suffix <middle>
 */
export async function promptsOf(
  engine: AsyncEngine,
  { prompts, suffix, addSpecial, suffixField: parameter = 'suffix', extra, params }: GapToFill,
  signal: AbortSignal,
): Promise<readonly (string | Int32Array)[]> {
  if (suffix === undefined) return prompts;
  const { fimTokens, name, maxModelLen } = engine.model;
  if (fimTokens === undefined) {
    const detail = `: the model \`${name}\` has no tokens for filling in the middle (FIM)`;
    throw fieldNotSupported({ parameter, detail });
  }
  const after = [fimTokens.suffix, ...(await tokenizeText(engine, suffix, false, signal)), fimTokens.middle];
  const filled: Int32Array[] = [];
  for (const prompt of prompts) {
    const isText = typeof prompt === 'string';
    const prefix = isText ? await tokenizeText(engine, prompt, false, signal) : prompt;
    const special = isText && addSpecial ? engine.tokenize('', { addSpecial }) : [];
    const text = [...special, fimTokens.prefix, ...prefix, ...after];
    // The first tokens of the extra texts are left out if there is no room for them.
    const room = Math.max(0, maxModelLen - (params.maxTokens ?? 1) - text.length);
    const before = await extraTokens(engine, extra, signal);
    filled.push(Int32Array.from([...before.slice(Math.max(0, before.length - room)), ...text]));
  }
  return filled;
}

/** As llama-server writes them, whose clients expect the answers of its prompts. */
const repository = 'myproject\n';
const currentFile = 'filename\n';
const betweenSnippets = '\n\n--- snippet ---\n\n';

/**
 * The extra texts as the files of a repository, as in Qwen2.5-Coder's training; without tokens for files, as snippets.
 *
 *     <repository> name <file> name text <file> name text <file> name
 */
async function extraTokens(
  engine: AsyncEngine,
  extra: readonly ExtraText[] | undefined,
  signal: AbortSignal,
): Promise<readonly number[]> {
  const { fimTokens } = engine.model;
  if (extra === undefined || fimTokens === undefined) return [];
  const tokensOf = async (text: string): Promise<Int32Array> =>
    text === '' ? new Int32Array() : await tokenizeText(engine, text, false, signal);
  const { repository: repositoryToken, file } = fimTokens;
  const tokens: number[] = [];
  const addFile = async (name: string): Promise<void> => {
    if (file !== undefined) tokens.push(file);
    for (const token of await tokensOf(file === undefined ? betweenSnippets : name)) tokens.push(token);
  };
  if (repositoryToken !== undefined) tokens.push(repositoryToken, ...(await tokensOf(repository)));
  for (const { name, text } of extra) {
    await addFile(`${name}\n`);
    for (const token of await tokensOf(text)) tokens.push(token);
  }
  if (file !== undefined) await addFile(currentFile);
  return tokens;
}
