/** A global setup of Vitest: tests import the build, and start commands of it. */
import { buildOnce } from './build-once.ts';

export default (): Promise<void> => buildOnce(process.cwd());
