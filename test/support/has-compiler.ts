import { spawnSync } from 'node:child_process';

/** Whether this machine has the C compiler that kernels are compiled with. */
export const hasCompiler = spawnSync((process.env.CC || 'cc').split(' ')[0]!, ['--version']).status === 0;
