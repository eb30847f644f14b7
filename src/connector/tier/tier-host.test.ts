import { suiteIdentity, tierSuite } from './tier.suite.ts';
import { HostTier } from './tier-host.ts';

// Another process never sees this one's memory.
tierSuite('HostTier', (maxBytes) => {
  const tier = new HostTier({ identity: suiteIdentity, maxBytes });
  return Promise.resolve({ tier, reopen: () => Promise.resolve(undefined) });
});
