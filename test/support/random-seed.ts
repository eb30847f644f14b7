import fc from 'fast-check';

/** Set up before each test file: with KVASIR_SEED, properties are tested with the same random input in each run. */
const seed = process.env.KVASIR_SEED;
if (seed !== undefined) fc.configureGlobal({ ...fc.readConfigureGlobal(), seed: Number(seed) | 0 });
