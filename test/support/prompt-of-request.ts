import { RenderedPrompt } from '../../src/engine/chat/rendered-prompt.ts';
import { Server } from '../../src/server/server.ts';
import { type FittedTemplate, fittedTemplate } from '../../src/templates/fitted-template.ts';
import type { TemplateMessage } from '../../src/tokenizer/chat-template.ts';
import { LetterEngine } from './letter-engine.ts';

/** The endpoints whose requests become prompts by the chat template. */
export type ChatPath = '/v1/chat/completions' | '/v1/responses' | '/v1/messages' | '/api/chat';

export interface PromptOfRequest {
  readonly status: number;
  /** The text whose tokens the engine computes; empty if the request was refused. */
  readonly prompt: string;
  /** What was changed because the template does not take it. */
  readonly changes: readonly string[];
  /** The body of the answer: an error if the request was refused. */
  readonly answer: string;
}

const today = new Date(2026, 0, 5, 9, 7, 3);

/** A server with this chat template, whose model has no weights. `source`: Jinja. */
export class TemplateServer {
  readonly #engine: LetterEngine;
  readonly #server: Server;
  readonly #template: FittedTemplate;
  #changes: readonly string[] = [];
  #origin: Promise<string> | undefined;

  constructor(source: string) {
    this.#template = fittedTemplate(source, { bosToken: '<s>', eosToken: '</s>', now: () => today });
    this.#engine = new LetterEngine({ answer: 'Yes.', chatTemplate: source, maxModelLen: 1_000_000 });
    this.#engine.renderChat = async (messages, options = {}) => {
      const { text, changes } = this.#template.render(messages as readonly TemplateMessage[], options);
      this.#changes = changes;
      return new RenderedPrompt(text);
    };
    this.#server = new Server(this.#engine, { version: '1', logLevel: 'silent' });
  }

  /** The prompt that a request becomes. The body is read as the server of each API reads it. */
  async prompt(path: ChatPath, body: object | string): Promise<PromptOfRequest> {
    const before = this.#engine.requests.length;
    this.#changes = [];
    this.#origin ??= this.#server.listen(0, '127.0.0.1').then((port) => `http://127.0.0.1:${port}`);
    const response = await fetch((await this.#origin) + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: typeof body === 'string' ? body : JSON.stringify(body),
    });
    const answer = await response.text();
    const tokens = this.#engine.requests[before]?.prompt as readonly number[] | undefined;
    const prompt = tokens === undefined ? '' : this.#engine.detokenize(tokens, { skipSpecialTokens: false });
    return { status: response.status, prompt, changes: this.#changes, answer };
  }

  async close(): Promise<void> {
    await this.#server.app.close();
  }
}
