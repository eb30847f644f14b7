import { type BuiltInSpec, type DiskSpec, diskDefaults } from '../../src/connector/offloading/tier-spec.ts';
import { diskSubject } from './disk-subject.ts';
import { redisSubject } from './redis-subject.ts';
import { s3Subject } from './s3-subject.ts';
import type { SubjectOptions, TierSubject } from './tier-subject.ts';

/** Opens the tier of a specification, as `kvasir serve` would, and its limit. */
export function openSubject(spec: BuiltInSpec, options: SubjectOptions): Promise<TierSubject> {
  switch (spec.kind) {
    case 'disk':
      return diskSubject(spec, options);
    case 'redis':
      return redisSubject(spec, options);
    case 's3':
      return s3Subject(spec, options);
  }
}

export const diskIn = (path: string): DiskSpec => ({ kind: 'disk', path, ...diskDefaults });
