import { relative } from 'node:path';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** The files with the most CPU time or the longest waits, by project, most first. A list, because a clean checkout has no times of an earlier run. */
export const heavyFiles = [
  'test/e2e/kv-transfer.test.ts',
  'test/e2e/offloading.test.ts',
  'test/e2e/fleet.test.ts',
  'test/e2e/shutdown.test.ts',
  'test/e2e/demo.test.ts',
  'test/cpu-builds.test.ts',
  'test/worker-processes.test.ts',
  'test/stopped-workers.test.ts',
  'test/e2e/models-from-hub.test.ts',
  'test/worker-chaos.test.ts',
  'test/e2e/cli.test.ts',
  'test/dead-storage.test.ts',
  'test/recovery-schedules.test.ts',
  'test/hits-kept.test.ts',
  'test/e2e/package.test.ts',
  'test/page/chat.test.ts',
  'test/dead-tiers.test.ts',
  'test/e2e/disaggregated.test.ts',
  'test/shipped-connectors.test.ts',
  'test/offloading-faults.test.ts',
  'test/recovery-process-schedules.test.ts',
  'test/own-sides-faults.test.ts',
  'test/e2e/bench-recovery.test.ts',
  'test/kv-keys.test.ts',
  'test/kv-events.test.ts',
  'test/recovery-disk.test.ts',
  'test/recovery-cases.test.ts',
  'test/page/cache.test.ts',
  'test/kernel-forms.test.ts',
  'test/e2e/long-prompts.test.ts',
  'test/e2e/service-manager.test.ts',
  'test/e2e/demo-planted-bugs.test.ts',
  'test/model-identity.test.ts',
  'test/full-disk-tier.test.ts',
  'test/tracing.test.ts',
  'test/e2e/offloading-guide.test.ts',
  'test/connector-kill.test.ts',
  'test/kernel-file-damage.test.ts',
  'test/vllm-hybrid-model.test.ts',
  'test/e2e/server.test.ts',
  'test/draft-model.test.ts',
  'test/reference.test.ts',
  'test/leak.test.ts',
  'test/nth-failure.test.ts',
  'test/kernel-fallback.test.ts',
  'test/exactness.test.ts',
  'test/pipeline.test.ts',
  'test/embeddings.test.ts',
  'test/suffix-speculation.test.ts',
  'test/prompt-results.test.ts',
  'test/long-context.test.ts',
  'test/model-size.test.ts',
  'bench/command.test.ts',
  'sim/mutants.test.ts',
  'sim/fresh-seeds.test.ts',
  'sim/fixed-seeds.test.ts',
  'sim/cluster/mutants.test.ts',
  'src/runner/matmul/tiled-matmul.test.ts',
  'src/cli/doctor/doctor.test.ts',
  'src/runner/matmul/tiled-experts.test.ts',
  'src/runner/mixer/mixers.test.ts',
  'sim/cluster/cluster.test.ts',
  'bench/subject/server-peer.test.ts',
  'sim/scheduler/bounded-loss.test.ts',
  'src/runner/attention/attention-native.test.ts',
  'sim/starvation.test.ts',
  'src/ggml/file-digest.test.ts',
  'src/connector/shared-storage/shared-storage-connector.test.ts',
  'src/connector/offloading/offloading-connector.test.ts',
  'src/connector/tier/s3/tier-s3.test.ts',
  'src/connector/tier/disk/tier-disk.test.ts',
  'src/connector/fault/faulty-connector.test.ts',
  'src/connector/connector-mutants.test.ts',
  'src/connector/tier/redis/redis-faults.test.ts',
  'src/connector/tier/disk/tier-disk-dead.test.ts',
];

/**
 * Slow files start first, so that no slow file starts when the others have ended. Files that share processes come one after the other,
 * project by project: Vitest keeps a process only if the next file can share it. Those that start processes wait the most and come first.
 */
export class HeavyFilesFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const projects = [...new Set(sorted.map(({ project }) => project.name))];
    const placeOfProject = ({ project: { name, config } }: TestSpecification): number => {
      if (name === 'whole') return -2;
      return config.isolate ? -1 : projects.indexOf(name);
    };
    return sorted.toSorted((a, b) => placeOfProject(a) - placeOfProject(b) || placeOf(a) - placeOf(b));
  }
}

function placeOf({ moduleId, project }: TestSpecification): number {
  const place = heavyFiles.indexOf(relative(project.config.root, moduleId).replaceAll('\\', '/'));
  return place < 0 ? heavyFiles.length : place;
}
