import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { makeFolders } from '../../src/base/make-folders.ts';
import { openTier } from '../../src/connector/offloading/open-tier.ts';
import type { DiskSpec } from '../../src/connector/offloading/tier-spec.ts';
import { RawFiles } from '../transfer/raw-files.ts';
import { CheckedTier } from './checked-tier.ts';
import { type SubjectOptions, type TierSubject, tierOptions } from './tier-subject.ts';

/** The limit: as many plain files. The tier and the limit have folders of their own in the folder of the specification. */
export async function diskSubject(spec: DiskSpec, subject: SubjectOptions): Promise<TierSubject> {
  const { identity, blocks } = subject;
  await makeFolders(spec.path);
  const root = await mkdtemp(join(spec.path, 'kvasir-bench-'));
  const [path, rawFolder] = [join(root, 'tier'), join(root, 'raw')];
  await mkdir(path);
  await mkdir(rawFolder);
  const maxBytes = 2 * blocks * (identity.blockBytes + 4096);
  const { name, options } = tierOptions('disk', subject);
  const tier = new CheckedTier(await openTier({ name: 'disk', spec: { ...spec, path, maxBytes } }, options));
  const files = new RawFiles(rawFolder);
  return {
    name,
    limit: { store: 'fs.write', load: 'fs.read' },
    callsAtOnce: { store: spec.writeThreads, load: spec.readThreads },
    store: (key, bytes) => tier.store(key, bytes),
    load: (key, into) => tier.load(key, into),
    delete: (keys) => tier.delete(keys),
    storeLimit: (index, bytes) => files.writeOne(index, bytes),
    loadLimit: (index, into) => files.readOne(index, into),
    clearLimit: () => files.remove(),
    close: async () => {
      await tier.close();
      await rm(root, { recursive: true, force: true });
    },
  };
}
