import type { ErrorAnswer } from '../http/server-errors.ts';
import type { RenderContext, Renderer } from './renderer.ts';
import type { ParsedChat, ParsedCompletion, ParseLimits } from './request.ts';
import type { RouteDescription } from './route-description.ts';

/** An endpoint of an API whose requests generate. `GenerationRoute` does all else, from the body to the last byte. */
export interface Endpoint {
  readonly path: string;
  readonly about: RouteDescription;
  /** The beginning of the names of its requests. */
  readonly idPrefix: string;
  /** Reads the body. @throws KvasirError that names the field as the client wrote it */
  read(body: unknown, limits: ParseLimits): ParsedChat | ParsedCompletion | AnsweredAtOnce;
  /** Called once for each request that generates. */
  render(context: RenderContext): Renderer;
  /** The body of an error. Default: OpenAI's, and Ollama's below `/api`. */
  readonly errorBody?: (answer: ErrorAnswer) => object;
  /** The API's name of the header with the id of the request, besides `x-request-id`. */
  readonly idHeader?: string;
}

/** A request that needs no output of the model. */
export interface AnsweredAtOnce {
  readonly model?: string | undefined;
  /** `name`: of the model. */
  answer(name: string): object;
}
