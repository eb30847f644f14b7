/** What a `NativeThread` runs. */
import { workerData } from 'node:worker_threads';
import { serveCalls } from '../base/call-thread.ts';
import { bindByAddress } from './ffi.ts';
import type { NativeLibraries } from './native-package.ts';
import type { NativeCall } from './native-thread.ts';

const bound = bindByAddress(workerData as NativeLibraries);

serveCalls(({ name, args }: NativeCall): unknown => bound(name)(...args));
