/** What is wrong with an engine's options, without the model: for servers, which listen before they read it. */
import { stat } from 'node:fs/promises';
import type { JsonObject } from './base/json.ts';
import { readKvTransferConfig } from './connector/config.ts';
import { createConnector } from './connector/registry.ts';
import { readKvEventsConfig } from './engine/kv-events/config.ts';
import { type EngineOptions, resolveEngineOptions } from './engine/options.ts';
import { withModelFile } from './ggml/errors.ts';
import { modelFile } from './hub/model-file.ts';
import { isHubName } from './hub/model-name.ts';
import { readSpeculativeConfig } from './scheduler/speculation/options.ts';

/** A store that has not answered by then is checked again when the engine opens it: the server listens meanwhile. */
const patienceDefaultMs = 1000;

/**
 * @throws KvasirError `createEngine` would have the same error with any model: wrong settings, a connector or a tier's class that does not
 * exist, a directory, a bucket or a password that a store refuses, or no model file.
 */
export async function checkEngineOptions(options: EngineOptions, patienceMs = patienceDefaultMs): Promise<void> {
  const { speculativeConfig, kvEventsConfig, kvTransferConfig, model } = resolveEngineOptions(options);
  if (speculativeConfig !== undefined) readSpeculativeConfig(speculativeConfig);
  if (kvEventsConfig !== undefined) readKvEventsConfig(kvEventsConfig);
  if (kvTransferConfig !== undefined) {
    const connector = await createConnector(readKvTransferConfig(kvTransferConfig as JsonObject));
    if (connector.checkSettings !== undefined) await unlessSlow(connector.checkSettings(), patienceMs);
  }
  if (!isHubName(model)) await checkModelFile(model);
}

async function unlessSlow(check: Promise<void>, patienceMs: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const slow = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, patienceMs);
  });
  await Promise.race([check, slow]).finally(() => clearTimeout(timer));
}

async function checkModelFile(model: string): Promise<void> {
  const path = await modelFile(model);
  await stat(path).catch((error: unknown) => {
    throw withModelFile(path, error);
  });
}
