import { findZig } from '../../scripts/prebuild/zig.ts';

/** Zig in the pinned version, which builds the kernels of the package. */
export const zig = findZig();
export const noZig = 'no Zig of the pinned version (pip install ziglang, see scripts/prebuild/zig.ts)';
