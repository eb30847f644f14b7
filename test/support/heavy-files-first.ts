import { relative } from 'node:path';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import { heavyFiles } from './heavy-files.ts';

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
