import { suiteIdentity, tierSuite } from './tier.suite.ts';
import { HostTier } from './tier-host.ts';

// `reopen` has no result, because another process cannot read the memory of this process.
tierSuite('HostTier', (maxBytes) => {
  const tier = new HostTier({ identity: suiteIdentity, maxBytes });
  return Promise.resolve({ tier, reopen: () => Promise.resolve(undefined) });
});
