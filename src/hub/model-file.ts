import { stat } from 'node:fs/promises';
import { modelNotPath } from './errors.ts';
import { isHubName } from './model-name.ts';
import { findOrPullModel, type PullOptions } from './pull-model.ts';

/**
 * The file of a model that is named by a path or by its name on the hub, which is downloaded if it is not there.
 * @throws modelNotPath if there is no such file and the text looks like the name of a repository
 */
export async function modelFile(model: string, options: PullOptions = {}): Promise<string> {
  if (isHubName(model)) return findOrPullModel(model, options);
  const isRepository = /^[A-Za-z0-9][\w.-]*\/[A-Za-z0-9][\w.-]*(:[\w.-]+)?$/.test(model) && !/\.gguf$/i.test(model);
  if (!isRepository || (await stat(model).catch(() => undefined)) !== undefined) return model;
  const [repository = '', selector] = model.split(':');
  const suggestion = /gguf/i.test(repository)
    ? `hf:${model}`
    : `hf:${repository}-GGUF${selector === undefined ? '' : `:${selector}`}`;
  throw modelNotPath({ path: model, suggestion });
}
