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
  const suggestion = suggestionFor(model);
  if (suggestion === undefined || (await stat(model).catch(() => undefined)) !== undefined) return model;
  throw modelNotPath({ path: model, suggestion });
}

/** For texts that are no path of a GGUF file: names on Hugging Face, and names of Ollama's models such as `qwen3:8b`. */
function suggestionFor(model: string): string | undefined {
  const [, repository = '', name, selector = ''] =
    /^([A-Za-z0-9][\w.-]*(\/[A-Za-z0-9][\w.-]*)?)(:[\w.-]+)?$/.exec(model) ?? [];
  if (repository === '' || /\.gguf$/i.test(model)) return undefined;
  if (name === undefined) return 'its owner and its repository, like hf:Qwen/Qwen3-0.6B-GGUF:Q8_0';
  return `hf:${repository}${/gguf/i.test(repository) ? '' : '-GGUF'}${selector}`;
}
