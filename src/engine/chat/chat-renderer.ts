import type { ChatMessage, ChatTemplateOptions, ModelInfo, RenderChatOptions } from '../contract.ts';
import { checkMakesText } from '../embed.ts';
import type { ChatRenderers } from '../engine-parts.ts';
import { chatTemplateMissing } from '../errors.ts';
import type { TextQueue } from '../text-queue.ts';
import { RenderedPrompt } from './rendered-prompt.ts';

/** Renders the chat template of an engine's model. @throws KvasirError `chatTemplateMissing` */
export class ChatRenderer {
  readonly #renderers: ChatRenderers;
  readonly #model: ModelInfo;
  readonly #texts: TextQueue;

  constructor(renderers: ChatRenderers, model: ModelInfo, texts: TextQueue) {
    this.#renderers = renderers;
    this.#model = model;
    this.#texts = texts;
  }

  /** On the calling thread. */
  renderHere(messages: readonly ChatMessage[], options: ChatTemplateOptions): RenderedPrompt {
    const { renderChat } = this.#renderers;
    if (renderChat === undefined) checkMakesText(this.#model);
    if (renderChat === undefined) throw chatTemplateMissing({ model: this.#model.name });
    return new RenderedPrompt(renderChat(messages, withDefaults(options)));
  }

  /** On another thread. The request counts as waiting until then. */
  async render(messages: readonly ChatMessage[], { signal, ...options }: RenderChatOptions): Promise<RenderedPrompt> {
    const { renderInBackground } = this.#renderers;
    if (renderInBackground === undefined) return this.renderHere(messages, options);
    const render = (stop: AbortSignal): Promise<string> => renderInBackground(messages, withDefaults(options), stop);
    return this.#texts.hold(1, signal, render, (text) => new RenderedPrompt(text));
  }
}

const withDefaults = (options: ChatTemplateOptions) => ({
  ...options,
  addGenerationPrompt: options.addGenerationPrompt ?? true,
});
