/**
 * Far more than the characters of any word, and far fewer than overflow the stack of C functions (`koffi-config.ts`).
 */
export const RUN_LENGTH_MAX = 32_000;

/**
 * The offsets at which a text must be cut, so that no run of white space or of other characters is longer than
 * RUN_LENGTH_MAX.
 *
 * libllama splits texts into words with regular expressions whose engine recurses once per character. So a prompt of
 * fifty thousand letters without a space would overflow the stack and end the process. Real texts have no such run. The
 * tokens at a cut may differ from llama.cpp's.
 */
export function cutLongRuns(text: string): number[] {
  const cuts: number[] = [];
  if (text.length <= RUN_LENGTH_MAX) return cuts;
  let runStart = 0;
  let wasSpace = isSpace(text.charCodeAt(0));
  for (let at = 1; at < text.length; at++) {
    const code = text.charCodeAt(at);
    const space = isSpace(code);
    if (space !== wasSpace) {
      wasSpace = space;
      runStart = at;
    } else if (at - runStart >= RUN_LENGTH_MAX && !isLowSurrogate(code)) {
      cuts.push(at);
      runStart = at;
    }
  }
  return cuts;
}

/** ASCII's white space only: other white space lengthens a run, which is safe. */
const isSpace = (code: number): boolean => code === 0x20 || (code >= 0x09 && code <= 0x0d);

const isLowSurrogate = (code: number): boolean => code >= 0xdc00 && code <= 0xdfff;
