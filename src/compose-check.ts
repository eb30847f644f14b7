/** What is wrong with an engine's options and the headers of its models: for servers, which listen before they read the weights. */
import type { JsonObject } from './base/json.ts';
import { readKvTransferConfig } from './connector/config.ts';
import { createConnector } from './connector/registry.ts';
import { readDraftModel } from './draft-model-file.ts';
import { readKvEventsConfig } from './engine/kv-events/config.ts';
import { type EngineOptions, resolveEngineOptions } from './engine/options.ts';
import { readGguf } from './ggml/gguf.ts';
import { readModelConfig } from './ggml/model-config.ts';
import { modelFile } from './hub/model-file.ts';
import { isHubName, parseHubName } from './hub/model-name.ts';
import { readSpeculativeConfig, type SpeculationOptions } from './scheduler/speculation/options.ts';

/** A store that has not answered by then is checked again when the engine opens it: the server listens meanwhile. */
const patienceDefaultMs = 1000;

/**
 * @param checksModel false: the options are those of several models, which are checked when they are loaded
 * @throws KvasirError `createEngine` would have the same error: wrong settings, a connector or a tier's class that does not exist, a
 * directory, a bucket or a password that a store refuses, a file that is no model or has an unknown architecture, or a draft
 * model with another vocabulary.
 */
export async function checkEngineOptions(
  options: EngineOptions,
  checksModel = true,
  patienceMs = patienceDefaultMs,
): Promise<void> {
  const { speculativeConfig, kvEventsConfig, kvTransferConfig, model, maxModelLen } = resolveEngineOptions(options);
  const speculation = speculativeConfig && readSpeculativeConfig(speculativeConfig);
  if (kvEventsConfig !== undefined) readKvEventsConfig(kvEventsConfig);
  if (kvTransferConfig !== undefined) {
    const connector = await createConnector(readKvTransferConfig(kvTransferConfig as JsonObject));
    if (connector.checkSettings !== undefined) await unlessSlow(connector.checkSettings(), patienceMs);
  }
  if (checksModel) await checkModelFiles(model, maxModelLen, speculation);
}

async function unlessSlow(check: Promise<void>, patienceMs: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const slow = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, patienceMs);
  });
  await Promise.race([check, slow]).finally(() => clearTimeout(timer));
}

/** The header only, and no downloads: a file of the hub is checked when it is there. */
async function checkModelFiles(
  model: string,
  maxModelLen: number | undefined,
  speculation: SpeculationOptions | undefined,
): Promise<void> {
  if (isHubName(model)) {
    parseHubName(model);
    return;
  }
  const path = await modelFile(model);
  const file = await readGguf(path);
  readModelConfig(file, maxModelLen);
  if (speculation?.method === 'draft_model' && !isHubName(speculation.model))
    await readDraftModel(speculation, { model: path }, file);
}
