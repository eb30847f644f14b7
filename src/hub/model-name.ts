import { hubNameInvalid } from './errors.ts';
import { isSafePath } from './safe-names.ts';

/** A model on Hugging Face or a mirror of it. */
export interface HubModel {
  /** `owner/name`. */
  readonly repository: string;
  /** A branch, a tag or a commit. */
  readonly revision: string;
  /** A quantization such as `Q8_0`, or a file; undefined: the default of `selectModel`. */
  readonly selector?: string;
}

const webPrefix = /^(?:https?:\/\/)?(?:www\.)?(?:huggingface\.co|hf\.co)\//i;
const repositoryPattern = /^[A-Za-z0-9][\w.-]*\/[A-Za-z0-9][\w.-]*$/;

/** Whether the text has the form `owner/name`. */
export const isRepository = (text: string): boolean => repositoryPattern.test(text);

/** Whether the text names a model on the hub, and not a file. */
export const isHubName = (text: string): boolean => /^hf:/i.test(text) || webPrefix.test(text);

/**
 * Reads `hf:owner/name[@revision][:selector]`, and addresses of web pages: `https://huggingface.co/owner/name`, also with
 * `/blob/revision/file.gguf` or `/resolve/revision/file.gguf`.
 * @throws hubNameInvalid
 */
export function parseHubName(name: string): HubModel {
  const model = webPrefix.test(name) ? fromAddress(name) : fromShortName(name, name.slice('hf:'.length));
  if (!isRepository(model.repository)) {
    throw hubNameInvalid({ name, reason: `"${model.repository}" is not a repository like owner/name` });
  }
  if (!isSafePath(model.revision) || !isSafePath(model.selector ?? 'x')) {
    throw hubNameInvalid({ name, reason: 'its revision or its file is empty, or is not a path below a folder' });
  }
  return model;
}

/** The short name, from which `parseHubName` reads the same model. */
export function hubName({ repository, revision, selector }: HubModel): string {
  const at = revision === 'main' ? '' : `@${revision}`;
  return `hf:${repository}${at}${selector === undefined ? '' : `:${selector}`}`;
}

function fromShortName(name: string, rest: string): HubModel {
  const colon = rest.indexOf(':');
  const selector = colon === -1 ? undefined : rest.slice(colon + 1);
  const [repository = '', revision, ...more] = (colon === -1 ? rest : rest.slice(0, colon)).split('@');
  if (more.length > 0) throw hubNameInvalid({ name, reason: 'it has more than one @' });
  return { repository, revision: revision ?? 'main', ...(selector === undefined ? {} : { selector }) };
}

function fromAddress(address: string): HubModel {
  const path = address
    .replace(webPrefix, '')
    .replace(/[?#].*$/, '')
    .replace(/\/$/, '');
  const [owner = '', name = '', kind, ...rest] = path.split('/');
  if (kind === undefined) return fromShortName(address, `${owner}/${name}`);
  const [revision = '', ...file] = rest.map(decodeURIComponent);
  if (kind === 'tree' && file.length === 0) return { repository: `${owner}/${name}`, revision };
  if (kind !== 'blob' && kind !== 'resolve') {
    throw hubNameInvalid({ name: address, reason: `it is the address of no model, but has /${kind}/` });
  }
  return { repository: `${owner}/${name}`, revision, selector: file.join('/') };
}
