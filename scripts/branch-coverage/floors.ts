import { readFileSync, writeFileSync } from 'node:fs';
import { assertDefined } from '../../src/base/assert.ts';

const floorFile = 'scripts/coverage-floor.json';

/** The smallest shares of reached branches, in percent. */
export interface Floors {
  /** Of the folders of `src` that the simulator must reach, in `steps` steps from `seed`. */
  readonly simulator: { readonly steps: number; readonly seed: number; readonly reachedPercent: Shares };
  /** Of the folders of `src/connector` that their tests must reach. `otherFolders`: of folders that are not listed. */
  readonly connector: ConnectorFloors;
}

export interface ConnectorFloors {
  readonly otherFolders: number;
  readonly reachedPercent: Shares;
}

type Shares = Readonly<Record<string, number>>;

export const readFloors = (): Floors => JSON.parse(readFileSync(floorFile, 'utf8')) as Floors;

/** Reports each folder, and sets the exit code if one is below its floor. `remedy`: what to do then. */
export function checkFloors(
  { reachedPercent, otherFolders }: { readonly reachedPercent: Shares; readonly otherFolders?: number },
  found: ReadonlyMap<string, number>,
  remedy: string,
): void {
  for (const folder of new Set([...Object.keys(reachedPercent), ...found.keys()])) {
    const floor = assertDefined(reachedPercent[folder] ?? otherFolders, `src/${folder} has a floor`);
    const share = found.get(folder) ?? 0;
    console.log(`src/${folder}: ${share.toFixed(1)} % of the branches, at least ${floor} %`);
    if (share >= floor) continue;
    console.error(`src/${folder} is below its floor in ${floorFile}: the lines above are not reached. ${remedy}`);
    process.exitCode = 1;
  }
}

/**
 * Sets the floors of the connector to the shares found, less one percent and at least three branches: other threads decide what some
 * tests reach, and a reached branch may move to another folder.
 */
export function updateConnectorFloors(found: ReadonlyMap<string, FolderBranches>): void {
  const floors = readFloors();
  const floorOf = ({ count, missed }: FolderBranches): number => {
    const allowed = missed + Math.max(3, count / 100);
    return Math.max(0, Math.floor(reachedPercent({ count, missed: allowed }) * 2) / 2);
  };
  const percents = Object.fromEntries([...found].map(([folder, branches]) => [folder, floorOf(branches)]));
  const updated: Floors = { ...floors, connector: { ...floors.connector, reachedPercent: percents } };
  writeFileSync(floorFile, `${JSON.stringify(updated, null, 2)}\n`);
}

/** The branches of one folder. */
export interface FolderBranches {
  readonly count: number;
  readonly missed: number;
}

export const reachedPercent = ({ count, missed }: FolderBranches): number => (100 * (count - missed)) / count;
