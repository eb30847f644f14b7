import { byId } from './dom.js';
import { session } from './store.js';

/** Relative URLs: the page may be mounted below any path. */
const keyName = `kvasir-key:${location.pathname}`;
let key = session.read(keyName);
/** @type {Promise<boolean> | undefined} */
let asking;

/**
 * Calls the server, and asks for an API key when the server wants one.
 * @param {string} path
 * @param {{ method?: string, body?: unknown, signal?: AbortSignal | undefined, asksForKey?: boolean }} options
 * @returns {Promise<Response>} of any status
 */
export async function call(path, { method = 'GET', body, signal, asksForKey = true } = {}) {
  for (;;) {
    /** @type {Record<string, string>} */
    const headers = {};
    const sent = key;
    if (body !== undefined) headers['content-type'] = 'application/json';
    if (sent !== '') headers.authorization = `Bearer ${sent}`;
    const response = await fetch(path, {
      method,
      headers,
      ...(signal === undefined ? {} : { signal }),
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    if (response.status !== 401 || !asksForKey) return response;
    // Another request has asked meanwhile.
    if (sent !== key) continue;
    asking ??= askForKey(key !== '');
    const isGiven = await asking;
    asking = undefined;
    if (!isGiven) return response;
  }
}

/**
 * @param {boolean} isAgain The server has refused the key.
 * @returns {Promise<boolean>}
 */
function askForKey(isAgain) {
  byId('key-refused', HTMLElement).hidden = !isAgain;
  const dialog = byId('key-dialog', HTMLDialogElement);
  const input = byId('key', HTMLInputElement);
  input.value = '';
  dialog.returnValue = '';
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener(
      'close',
      () => {
        const isGiven = dialog.returnValue === 'ok' && input.value !== '';
        if (isGiven) {
          key = input.value;
          session.write(keyName, key);
        }
        resolve(isGiven);
      },
      { once: true },
    );
  });
}

byId('key-cancel', HTMLButtonElement).addEventListener('click', () => byId('key-dialog', HTMLDialogElement).close());

/** The server refused the request, or an event of its answer is an error. */
export class ServerError extends Error {}

/**
 * The answer as JSON.
 * @param {Response} response
 * @returns {Promise<any>}
 */
export async function jsonOf(response) {
  const body = await response.json().catch(() => undefined);
  if (response.ok && body !== undefined) return body;
  throw new ServerError(body?.error?.message ?? `The server answered with status ${response.status}.`);
}

/**
 * The events of a streamed answer.
 * @param {Response} response
 * @returns {AsyncGenerator<any>}
 */
export async function* eventsOf(response) {
  if (!response.ok || response.body === null) throw await jsonOf(response).catch((error) => error);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const events = (rest + value).split('\n\n');
      rest = events.pop() ?? '';
      for (const event of events) {
        if (!event.startsWith('data: ') || event === 'data: [DONE]') continue;
        const data = JSON.parse(event.slice(6));
        if (data.error) throw new ServerError(data.error.message);
        yield data;
      }
    }
  } finally {
    reader.cancel().catch(() => undefined);
  }
}

/**
 * What went wrong, for people.
 * @param {unknown} error
 */
export function messageOf(error) {
  if (error instanceof ServerError) return error.message;
  if (error instanceof TypeError) return 'The server cannot be reached. Is it still running?';
  return error instanceof Error ? error.message : String(error);
}

/** @param {unknown} error */
export const isAbort = (error) => error instanceof DOMException && error.name === 'AbortError';
