import type { LenientApi } from '../../http/access.ts';
import type { OllamaError } from './ollama-types.ts';

/** Whether a request is for Ollama's API, also if there is no such endpoint. */
export const isOllamaPath = (path: string): boolean => path.startsWith('/api/');

/** An error in Ollama's form. */
export const ollamaError = ({
  body,
}: {
  readonly body: { readonly error: { readonly message: string } };
}): OllamaError => ({ error: body.error.message });

/** Ollama reads every body as JSON, and its clients read nothing but its own errors. */
export const ollamaApi: LenientApi = { hasPath: isOllamaPath, errorBody: ollamaError };
