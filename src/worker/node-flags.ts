/** Flags that say what the engine's own process is: code to run, a debugger's port, a watcher. Some take a value. */
const ofItsOwn = /^(-e|--eval|-p|--print|-pe|-i|--interactive|-c|--check|--input-type|--inspect|--watch|--test)(-|=|$)/;
const withValue = new Set(['-e', '--eval', '-p', '--print', '-pe', '--input-type', '--inspect-port', '--watch-path']);

/**
 * What a worker inherits of Node's flags: loaders, memory limits and the like. Not all of them as Node would have it: a
 * worker has a file to run, and one debugger's port is taken.
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
