import { isJsonObject } from '../base/json.ts';
import { hubAnswerInvalid, hubRefused } from './errors.ts';
import { hubFetch, limitedBody, reasonOf } from './hub-fetch.ts';
import { type HubModel, isRepository } from './model-name.ts';
import { Retries } from './retries.ts';
import { isBlobName, isCommit, isSafePath, isSha256 } from './safe-names.ts';
import type { HubSettings } from './settings.ts';

/** A file of a repository at one commit. */
export interface HubFile {
  readonly path: string;
  readonly bytes: number;
  /** The name of its content: of large files the sha256, else git's hash. */
  readonly blob: string;
  readonly sha256?: string;
}

export interface HubRevision {
  readonly commit: string;
  readonly files: readonly HubFile[];
}

/** A file at one commit, from an offset on. */
export interface HubPart {
  readonly repository: string;
  readonly commit: string;
  readonly file: HubFile;
  readonly offset: number;
}

/** The part of a file that the hub sends. */
export interface HubBody {
  /** The offset of the first byte: 0 if the hub does not continue downloads. */
  readonly offset: number;
  readonly chunks: AsyncIterable<Uint8Array>;
}

/** Far more than the description of any repository. */
const descriptionBytesMax = 32 << 20;
const errorBytesMax = 64 << 10;

/** Calls of the hub's HTTP API. Nothing that the hub sends becomes a path or a message before its form is checked. Each call has a deadline for silence, and is repeated where that can help. */
export class HubClient {
  readonly #settings: HubSettings;
  readonly #retries: Retries;

  constructor(settings: HubSettings, retries = new Retries()) {
    this.#settings = settings;
    this.#retries = retries;
  }

  /** The files of a repository, and the commit that its revision means now. */
  async revision({ repository, revision }: HubModel, signal?: AbortSignal): Promise<HubRevision> {
    const path = `/api/models/${repository}/revision/${encodeURIComponent(revision)}?blobs=true`;
    const answer = await this.#json(path, `${repository} at ${revision}`, signal);
    if (!isJsonObject(answer) || typeof answer.sha !== 'string' || !Array.isArray(answer.siblings)) {
      throw this.#refused(`${repository} at ${revision}`, 200, 'the answer is not a description of a model');
    }
    const { sha: commit } = answer;
    const expected = isCommit(revision) ? `the commit ${revision}` : 'a commit of 40 hexadecimal digits';
    if (!isCommit(commit) || (isCommit(revision) && commit !== revision))
      throw this.#invalid('commit', commit, expected);
    return { commit, files: answer.siblings.flatMap(fileOf) };
  }

  /** Repositories with GGUF files of a model, the ones with the most downloads first. */
  async quantizationsOf(repository: string, signal?: AbortSignal): Promise<string[]> {
    const query = new URLSearchParams({ filter: `base_model:quantized:${repository}`, sort: 'downloads', limit: '3' });
    const answer = await this.#json(`/api/models?${query}&filter=gguf`, `models made from ${repository}`, signal);
    if (!Array.isArray(answer)) return [];
    return answer.flatMap((model) =>
      isJsonObject(model) && typeof model.id === 'string' && isRepository(model.id) ? [model.id] : [],
    );
  }

  /** Opens a file. Does not repeat the call: a download continues from what has arrived. */
  async open({ repository, commit, file, offset }: HubPart, signal?: AbortSignal): Promise<HubBody> {
    const path = `/${repository}/resolve/${commit}/${file.path.split('/').map(encodeURIComponent).join('/')}`;
    const silence = this.#retries.silence(signal);
    const range = offset === 0 ? {} : { range: `bytes=${offset}-` };
    try {
      const response = await this.#fetch(path, silence.signal, { 'accept-encoding': 'identity', ...range });
      await this.#checkStatus(response, file.path);
      const start = startOf(response, offset);
      if (start !== offset && start !== 0) {
        await response.body?.cancel();
        throw this.#invalid('content-range', response.headers.get('content-range') ?? '', `bytes from ${offset} on`);
      }
      return { offset: start, chunks: silence.watch(response.body ?? noChunks()) };
    } catch (error) {
      silence.end();
      throw error;
    }
  }

  #json(path: string, what: string, signal: AbortSignal | undefined): Promise<unknown> {
    return this.#retries.run(signal, async () => {
      const silence = this.#retries.silence(signal);
      try {
        const response = await this.#fetch(path, silence.signal);
        await this.#checkStatus(response, what);
        const body = await limitedBody(this.#settings.endpoint, response, descriptionBytesMax);
        try {
          return JSON.parse(body.toString()) as unknown;
        } catch (error) {
          throw this.#refused(what, response.status, `its body is not JSON: ${plainText(reasonOf(error))}`);
        }
      } finally {
        silence.end();
      }
    });
  }

  #fetch(path: string, signal: AbortSignal, headers: { readonly [name: string]: string } = {}): Promise<Response> {
    return hubFetch(this.#settings, path, { signal, headers });
  }

  async #checkStatus(response: Response, what: string): Promise<void> {
    if (response.ok) return;
    const reason = plainText(response.headers.get('x-error-message') ?? (await this.#shortText(response)));
    throw this.#refused(
      what,
      response.status,
      reason || plainText(response.statusText),
      response.headers.get('retry-after'),
    );
  }

  async #shortText(response: Response): Promise<string> {
    const body = await limitedBody(this.#settings.endpoint, response, errorBytesMax).catch(() => '');
    const text = body.toString();
    return /^\s*</.test(text) ? '' : text;
  }

  #invalid(field: string, found: string, expected: string) {
    const { endpoint } = this.#settings;
    return hubAnswerInvalid({ endpoint, field, found: JSON.stringify(plainText(found)), expected });
  }

  #refused(what: string, status: number, reason: string, retryAfter: string | null = null) {
    const { endpoint, token } = this.#settings;
    return hubRefused({
      endpoint,
      status,
      what,
      reason,
      remedy: remedyOf(status, token !== undefined),
      retryAfter: retryAfter ?? undefined,
    });
  }
}

function remedyOf(status: number, hasToken: boolean): string {
  if (status === 401 && !hasToken)
    return 'Check the name; for a private or gated model set HF_TOKEN to a token of your account';
  if (status === 401 || status === 403)
    return "Accept the model's licence on its page, and check that the token in HF_TOKEN may read it";
  if (status === 404) return 'Check the name and the revision';
  if (status === 429) return 'Wait some minutes; with HF_TOKEN the limit is higher';
  return 'Try again later';
}

/** The offset of the first byte: some mirrors send the whole file. */
function startOf(response: Response, asked: number): number {
  if (response.status !== 206) return 0;
  return Number(/^bytes (\d+)-/.exec(response.headers.get('content-range') ?? '')?.[1] ?? asked);
}

/** Files whose names, hashes or sizes have another form are left out: no model of this hub needs them. */
function fileOf(sibling: unknown): HubFile[] {
  if (!isJsonObject(sibling) || typeof sibling.rfilename !== 'string') return [];
  const { rfilename: path, size, blobId, lfs } = sibling;
  const sha256 = isJsonObject(lfs) ? lfs.sha256 : undefined;
  const blob = sha256 ?? blobId;
  if (!isSafePath(path) || typeof blob !== 'string' || !isBlobName(blob)) return [];
  if (typeof size !== 'number' || !Number.isSafeInteger(size) || size < 0) return [];
  if (sha256 === undefined) return [{ path, bytes: size, blob }];
  return isSha256(blob) ? [{ path, bytes: size, blob, sha256: blob }] : [];
}

/** Text from the network for a message: short, in one line, and without codes that a terminal would obey. */
const plainText = (text: string): string =>
  text
    .slice(0, 200)
    .replace(/[\s\p{Cc}\p{Cf}]+/gu, ' ')
    .trim();

async function* noChunks(): AsyncGenerator<Uint8Array> {}
