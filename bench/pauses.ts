/** Pauses before a measurement, after which compute threads that were used before no longer wait actively for work. */

/** Kvasir's threads. */
export const PAUSE_MS = 30;

/** Those of ggml, which libllama uses: 6.7 million `pause` instructions, a quarter of a second on a Sapphire Rapids. */
export const PAUSE_BESIDE_GGML_MS = 500;
