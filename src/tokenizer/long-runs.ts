/** Far more than any word has, and far less than what overflows the stack that `ffi.ts` gives to C functions. */
export const RUN_LENGTH_MAX = 32_000;

/**
 * Where to cut a text so that no piece has a longer run of white space, or of anything else, than RUN_LENGTH_MAX.
 *
 * libllama splits texts into words by regular expressions whose engine recurses once per character, so a prompt of fifty
 * thousand letters in a row would overflow the stack and kill the process. No text that means anything has such a run;
 * the tokens on either side of a cut may be others than llama.cpp would choose, if it survived.
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

/** ASCII's white space: other kinds lengthen a run, which errs on the safe side. */
const isSpace = (code: number): boolean => code === 0x20 || (code >= 0x09 && code <= 0x0d);

const isLowSurrogate = (code: number): boolean => code >= 0xdc00 && code <= 0xdfff;
