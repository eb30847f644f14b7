import { type DiskSpec, diskDefaults, type SecondarySpec } from '../../src/connector/offloading/tier-spec.ts';
import { tierNotMeasured } from '../errors.ts';
import { diskSubject } from './disk-subject.ts';
import type { SubjectOptions, TierSubject } from './tier-subject.ts';

/** Opens the tier of a specification, as `kvasir serve` would, and its limit. */
export function openSubject(spec: SecondarySpec, options: SubjectOptions): Promise<TierSubject> {
  switch (spec.kind) {
    case 'disk':
      return diskSubject(spec, options);
    case 'redis':
    case 's3':
      throw tierNotMeasured({ tier: spec.kind });
  }
}

export const diskIn = (path: string): DiskSpec => ({ kind: 'disk', path, ...diskDefaults });
