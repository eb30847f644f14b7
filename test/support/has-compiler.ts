import { spawnSync } from 'node:child_process';

/** Whether this machine has a C compiler for the kernels. */
export const hasCompiler = spawnSync((process.env.CC || 'cc').split(' ')[0]!, ['--version']).status === 0;
