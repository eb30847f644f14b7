import { describeValue } from '../../base/describe-value.ts';
import { isJsonObject, type JsonObject, type JsonValue } from '../../base/json.ts';
import { readKvTransferConfig } from '../config.ts';
import { configReader } from '../config-reader.ts';
import type { KvTransferConfig } from '../connector.ts';

/** The name of the list in `kv_connector`, as in vLLM. */
export const multiName = 'MultiConnector';

export const isMulti = ({ kvConnector, kvConnectorModulePath }: KvTransferConfig): boolean =>
  kvConnector === multiName && kvConnectorModulePath === undefined;

/**
 * Reads `kv_connector_extra_config` of a list of connectors:
 *
 *   connectors       in the order in which they load; each is a configuration as that of one connector
 *   fault_injection  the rules for all connectors that have no rules of their own
 *
 * A connector without `kv_role` or `engine_id` has that of the list.
 *
 * @throws KvasirError `kvConfigInvalid` that names the field.
 */
export function readMultiSettings(config: KvTransferConfig): readonly KvTransferConfig[] {
  const extra = configReader(config.kvConnectorExtraConfig);
  const faults = extra.plain('fault_injection') as JsonValue | undefined;
  const expected = 'a list of connectors, such as [{"kv_connector":"OffloadingConnector", ...}]';
  const connectors = extra.list(
    'connectors',
    (item, name) => {
      if (!isJsonObject(item as JsonValue)) throw extra.invalid(name, 'an object', describeValue(item));
      const one = readKvTransferConfig(item as JsonObject, { path: `${extra.pathOf(name)}.`, list: config });
      return faults === undefined ? one : withFaults(one, faults);
    },
    { min: 1 },
  );
  extra.finish();
  return extra.required('connectors', connectors, expected);
}

function withFaults(config: KvTransferConfig, faults: JsonValue): KvTransferConfig {
  const { kvConnectorExtraConfig: extra } = config;
  return { ...config, kvConnectorExtraConfig: { fault_injection: faults, ...extra } };
}
