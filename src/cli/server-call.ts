import { serverRefused, serverUnreachable } from './cli-errors.ts';

export interface ServerCall {
  readonly url: string;
  readonly path: string;
  readonly method?: 'GET' | 'POST' | 'PUT' | 'DELETE';
  readonly body?: object;
  readonly apiKey: string | undefined;
  readonly timeoutMs?: number;
}

const defaultTimeoutMs = 10_000;

/** The JSON that a running server answers. @throws KvasirError `serverUnreachable`, `serverRefused` */
export async function callServer({ url: given, path, method = 'GET', body, apiKey, timeoutMs }: ServerCall) {
  const url = (given.includes('://') ? given : `http://${given}`).replace(/\/+$/, '').replace(/\/v1$/, '');
  let response: Response;
  try {
    response = await fetch(`${url}${path}`, {
      method,
      signal: AbortSignal.timeout(timeoutMs ?? defaultTimeoutMs),
      headers: {
        ...(apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` }),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  } catch (error) {
    const cause = (error as Error).cause;
    const reason = cause instanceof Error ? cause.message || (cause as NodeJS.ErrnoException).code : undefined;
    throw serverUnreachable({ url, reason: reason ?? (error as Error).message }, error);
  }
  if (!response.ok) throw serverRefused({ url, status: response.status, reason: await reasonOf(response) });
  return (await response.json()) as unknown;
}

async function reasonOf(response: Response): Promise<string> {
  const body = (await response.json().catch(() => undefined)) as { error?: { message?: string } } | undefined;
  return body?.error?.message ?? response.statusText;
}
