import type { ParseLimits } from './request.ts';

/** What a route says about itself in `/openapi.json`. */
export interface RouteDescription {
  readonly summary: string;
  readonly body?: BodyDescription;
  /** The name of the type of the answer, or of those of its forms. Absent: any JSON. */
  readonly answer?: string | readonly string[];
  /** The name of the type of an event or line of a stream. */
  readonly chunk?: string;
  /** The media type of a stream or of an answer that is not JSON. */
  readonly media?: 'text/event-stream' | 'application/x-ndjson' | 'text/plain' | 'text/html';
  /** The name of the type of an error. Default: OpenAI's. */
  readonly error?: string;
}

export interface BodyDescription {
  /** With `others`, it has all objects whose fields are to be described. */
  readonly example: object;
  /** Bodies with other fields. What not all bodies need is not required. */
  readonly others?: readonly object[];
  /**
   * The functions that read the body. The fields that they look for are its schema. If two look for a field, the first describes it, and
   * only the first requires fields.
   */
  readonly reads: readonly ((body: object, limits: ParseLimits) => unknown)[];
}

declare module 'fastify' {
  interface FastifyContextConfig {
    about?: RouteDescription;
    /** The route is another path of one that is described. */
    isOtherPath?: boolean;
  }
}
