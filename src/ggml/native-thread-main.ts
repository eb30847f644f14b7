/** The code that a `NativeThread` runs. */
import { serveCalls } from '../base/call-thread.ts';
import { bindByAddress } from './ffi.ts';
import type { NativeLibraries } from './native-package.ts';
import type { NativeCall } from './native-thread.ts';

serveCalls((libraries: NativeLibraries) => {
  const bound = bindByAddress(libraries);
  return ({ name, args }: NativeCall): unknown => bound(name)(...args);
});
