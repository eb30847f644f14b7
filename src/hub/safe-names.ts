/** The forms of names that become paths on this machine. All other names from the network are refused. */

const namePartBytesMax = 255;
const pathBytesMax = 1_024;
/** Control characters, halves of characters, and characters that mean something else in paths of Windows. */
const otherCharacters = /[\p{Cc}\p{Cs}\\:*?"<>|]/u;
/** Windows opens a device instead of a file with these names, with any ending. */
const deviceName = /^(con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³])(\.|$)/i;

/** git's hash of a commit. */
export const isCommit = (text: string): boolean => /^[0-9a-f]{40}$/.test(text);

/** git's hash of a small file, or the sha256 of a large one. */
export const isBlobName = (text: string): boolean => /^([0-9a-f]{40}|[0-9a-f]{64})$/.test(text);

export const isSha256 = (text: string): boolean => /^[0-9a-f]{64}$/.test(text);

/** A path like `folder/file.gguf`, which stays below the folder to which it is relative, on every system. */
export const isSafePath = (path: string): boolean =>
  Buffer.byteLength(path) <= pathBytesMax && path.split('/').every(isSafeName);

function isSafeName(name: string): boolean {
  return (
    name !== '' &&
    Buffer.byteLength(name) <= namePartBytesMax &&
    !otherCharacters.test(name) &&
    // Windows removes them from the end; also `.` and `..`.
    !/[. ]$/.test(name) &&
    !deviceName.test(name)
  );
}
