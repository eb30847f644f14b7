import { createInterface, type Interface } from 'node:readline';
import type { Readable } from 'node:stream';
import { KvasirError } from '../../base/errors.ts';
import { nearestName } from '../../base/nearest-name.ts';
import type { CliContext, Terminal, TextSink } from '../context.ts';
import type { AnswerStats, Conversation } from './conversation.ts';

const help = `/help             show this help
/new              begin a new conversation
/system TEXT      begin a new conversation with this system message; without TEXT: show it
/retry            remove the last answer, and answer again
/undo             remove the last question and its answer
/stats            show or hide the speed of answers
/exit             leave (also Ctrl-D)

Ctrl-C stops an answer; twice at the prompt, it leaves.
A line that ends with \\ goes on in the next line.
`;
const commands = ['help', 'new', 'system', 'retry', 'undo', 'stats', 'exit'];
const ownPrompt = '> ';
const morePrompt = '. ';

export interface ChatLoopOptions {
  readonly conversation: Conversation;
  readonly context: Pick<CliContext, 'stdin' | 'stdout' | 'stderr' | 'terminal'>;
  /** Aborted when the program is to end. */
  readonly signal: AbortSignal;
  readonly showsStats: boolean;
  readonly nowMs?: () => number;
}

/**
 * Reads questions and prints answers, until the input ends. In a terminal with a prompt and a history of lines; from a
 * pipe, each line is a question.
 */
export class ChatLoop {
  readonly #options: ChatLoopOptions;
  readonly #out: TextSink;
  readonly #input: LineInput;
  #showsStats: boolean;
  #answering: AbortController | undefined;

  constructor(options: ChatLoopOptions) {
    const { context, signal } = options;
    this.#options = options;
    this.#out = context.stdout;
    this.#showsStats = options.showsStats;
    this.#input = new LineInput(context.stdin, context.terminal, () => this.#interrupt());
    signal.addEventListener('abort', () => this.#end(), { once: true });
  }

  async run(): Promise<void> {
    try {
      for (;;) {
        const line = await this.#input.read();
        if (line === undefined || this.#options.signal.aborted) return;
        if (line.trim() === '') continue;
        if (!line.startsWith('/')) await this.#ask(line);
        else if ((await this.#command(line.slice(1))) === 'exit') return;
      }
    } finally {
      this.#input.close();
    }
  }

  /** Stops the answer in progress; for a signal to the process if the input is no terminal. */
  stopAnswer(): boolean {
    this.#answering?.abort();
    return this.#answering !== undefined;
  }

  #end(): void {
    this.stopAnswer();
    this.#input.close();
  }

  #interrupt(): void {
    if (!this.stopAnswer()) this.#input.interruptLine();
  }

  async #command(line: string): Promise<'exit' | undefined> {
    const { conversation } = this.#options;
    const [, name = '', rest = ''] = /^(\S*)\s*([\s\S]*)$/.exec(line)!;
    if (name === 'exit' || name === 'quit' || name === 'bye') return 'exit';
    if (name === 'help' || name === '?') this.#out.write(help);
    else if (name === 'new' || name === 'clear') this.#say('A new conversation.', () => conversation.restart());
    else if (name === 'system') this.#system(rest);
    else if (name === 'retry') await this.#retry();
    else if (name === 'undo') this.#undo();
    else if (name === 'stats') this.#toggleStats();
    else {
      const nearest = nearestName(name, commands);
      this.#out.write(
        `There is no command /${name}.${nearest === undefined ? '' : ` Did you mean /${nearest}?`} /help shows all.\n`,
      );
    }
    return undefined;
  }

  #system(text: string): void {
    const { conversation } = this.#options;
    if (text === '') this.#out.write(`${conversation.system ?? 'There is no system message.'}\n`);
    else this.#say('A new conversation with this system message.', () => conversation.restart(text));
  }

  async #retry(): Promise<void> {
    const question = this.#options.conversation.takeBack();
    if (question === undefined) this.#out.write('There is no question yet.\n');
    else await this.#ask(question);
  }

  #undo(): void {
    const question = this.#options.conversation.takeBack();
    this.#out.write(question === undefined ? 'There is no question yet.\n' : `Removed: ${question}\n`);
  }

  #toggleStats(): void {
    this.#showsStats = !this.#showsStats;
    this.#out.write(`The speed of answers is ${this.#showsStats ? 'shown' : 'hidden'}.\n`);
  }

  #say(text: string, act: () => void): void {
    act();
    this.#out.write(`${text}\n`);
  }

  async #ask(question: string): Promise<void> {
    const { conversation, nowMs = () => performance.now() } = this.#options;
    this.#answering = new AbortController();
    const startMs = nowMs();
    let firstMs: number | undefined;
    let last = '';
    const onText = (text: string): void => {
      firstMs ??= nowMs();
      last = text;
      this.#out.write(text);
    };
    try {
      const stats = await conversation.ask(question, onText, this.#answering.signal);
      if (!last.endsWith('\n')) this.#out.write('\n');
      this.#report(stats, { startMs, firstMs: firstMs ?? nowMs(), endMs: nowMs() });
    } catch (error) {
      if (!(error instanceof KvasirError) && !this.#answering.signal.aborted) throw error;
      if (error instanceof KvasirError) this.#refused(error);
      else this.#out.write('(stopped)\n');
    } finally {
      this.#answering = undefined;
    }
  }

  #report(stats: AnswerStats, { startMs, firstMs, endMs }: { startMs: number; firstMs: number; endMs: number }): void {
    if (stats.end === 'stopped') this.#out.write('(stopped)\n');
    if (stats.end === 'length')
      this.#out.write('(cut at the limit of its length: see --max-tokens and --max-model-len)\n');
    if (!this.#showsStats) return;
    const { promptTokens, cachedTokens, outputTokens } = stats;
    const perSecond =
      outputTokens < 2 ? '' : `, ${((1000 * (outputTokens - 1)) / (endMs - firstMs)).toFixed(1)} tokens/s`;
    this.#options.context.stderr.write(
      `[prompt ${promptTokens} tokens, ${cachedTokens} cached; first token after ${Math.round(firstMs - startMs)} ms; ${outputTokens} tokens${perSecond}]\n`,
    );
  }

  /** The question is not in the conversation. */
  #refused(error: KvasirError): void {
    const remedy = error.fields.maxModelLen === undefined ? '' : ' /new begins a new conversation.';
    this.#options.context.stderr.write(`error: ${error.message}${remedy}\n`);
  }
}

/** Lines of a terminal or of a pipe. Keeps lines that arrive before they are read. */
class LineInput {
  readonly #readline: Interface;
  readonly #terminal: Terminal | undefined;
  readonly #lines: string[] = [];
  #wake: (() => void) | undefined;
  #hasEnded: boolean = false;
  /** For a line, with the prompt on the screen. */
  #isWaiting: boolean = false;
  #interruptions = 0;

  constructor(stdin: Readable, terminal: Terminal | undefined, onInterrupt: () => void) {
    this.#terminal = terminal;
    this.#readline = createInterface(
      terminal === undefined ? { input: stdin } : { ...terminal, terminal: true, prompt: ownPrompt },
    );
    this.#readline.on('line', (line) => {
      this.#interruptions = 0;
      this.#lines.push(line);
      this.#wake?.();
    });
    this.#readline.on('close', () => {
      // The shell's prompt begins on a new line.
      if (this.#isWaiting) terminal?.output.write('\n');
      this.#hasEnded = true;
      this.#wake?.();
    });
    this.#readline.on('SIGINT', onInterrupt);
  }

  /** One question: lines that end with a backslash are joined with the next. Undefined at the end of the input. */
  async read(): Promise<string | undefined> {
    let text = '';
    for (let prompt = ownPrompt; ; prompt = morePrompt) {
      const line = await this.#next(prompt);
      if (line === undefined) return text === '' ? undefined : text;
      if (!line.endsWith('\\')) return text + line;
      text += `${line.slice(0, -1)}\n`;
    }
  }

  async #next(prompt: string): Promise<string | undefined> {
    if (this.#terminal !== undefined && !this.#hasEnded) {
      this.#readline.setPrompt(prompt);
      this.#readline.prompt();
    }
    this.#isWaiting = true;
    while (this.#lines.length === 0 && !this.#hasEnded) await new Promise<void>((resolve) => (this.#wake = resolve));
    this.#isWaiting = false;
    return this.#lines.shift();
  }

  /** Ctrl-C at the prompt: the first erases the line, the second ends the input. */
  interruptLine(): void {
    this.#interruptions++;
    if (this.#interruptions >= 2) {
      this.#readline.close();
      return;
    }
    this.#readline.write(null, { ctrl: true, name: 'e' });
    this.#readline.write(null, { ctrl: true, name: 'u' });
    this.#terminal?.output.write('\n(Ctrl-C again or Ctrl-D leaves; /help shows the commands)\n');
    this.#readline.prompt();
  }

  close(): void {
    this.#readline.close();
  }
}
