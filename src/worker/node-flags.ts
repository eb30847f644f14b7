/** Flags for the engine's own process only: code to run, the port of a debugger, a watcher. Some take a value. */
const ofItsOwn = /^(-e|--eval|-p|--print|-pe|-i|--interactive|-c|--check|--input-type|--inspect|--watch|--test)(-|=|$)/;
const withValue = new Set(['-e', '--eval', '-p', '--print', '-pe', '--input-type', '--inspect-port', '--watch-path']);

/**
 * The Node flags that a worker inherits, such as loaders and memory limits. Node would pass all of them, but a worker has
 * its own file to run, and the port of the debugger is in use.
 */
export function inheritedFlags(flags: readonly string[] = process.execArgv): string[] {
  const inherited: string[] = [];
  for (let i = 0; i < flags.length; i++) {
    const flag = flags[i]!;
    if (!ofItsOwn.test(flag)) inherited.push(flag);
    else if (withValue.has(flag)) i++;
  }
  return inherited;
}
