import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Prompt } from './generation.ts';
import type { ParsedGeneration } from './request.ts';

interface Prepared {
  readonly parsed: ParsedGeneration;
  readonly prompts: readonly Prompt[];
  /** Fields without effect. Default: those of the parsed request. */
  readonly ignored?: readonly string[];
}

/** Tells the client and the log what the answer does not take from the request. */
export function sendWarnings(
  request: FastifyRequest,
  reply: FastifyReply,
  { parsed, prompts, ignored = parsed.ignored }: Prepared,
): void {
  const warnings: string[] = [];
  if (ignored.length > 0) {
    warnings.push(ignoredText(ignored));
    request.requestLog.ignored = ignored;
  }
  const { maxTokens } = parsed.params;
  const least = Math.min(...prompts.map((prompt) => prompt.maxTokens));
  if (maxTokens !== undefined && least < maxTokens) {
    warnings.push(`max_tokens: ${maxTokens} was cut to ${least}, the rest of the context`);
    request.requestLog.maxTokensCut = { from: maxTokens, to: least };
  }
  // By RFC 7234: 299 is a persistent warning.
  if (warnings.length > 0) reply.header('warning', warnings.map((text) => `299 kvasir "${text}"`).join(', '));
}

/** Clients choose names, and a header has no room for all of them. */
function ignoredText(fields: readonly string[]): string {
  const more = fields.length > shownMax ? `, and ${fields.length - shownMax} more` : '';
  return `ignored: ${fields.slice(0, shownMax).map(headerText).join(', ')}${more}`;
}

const shownMax = 50;

/** Other characters would end the quoted text, or are not allowed in headers. */
const headerText = (name: string): string => name.replace(/[^ !#-[\]-~]/gu, '?');
