/** Counts how often each branch runs in this process. Code that runs on other threads is not counted. */
import { type Debugger, type Profiler, Session } from 'node:inspector/promises';

export interface ScriptCoverage {
  readonly url: string;
  readonly code: string;
  readonly functions: Profiler.FunctionCoverage[];
}

/**
 * Opened once per process: V8 counts the branches of a function only if the count was on when it compiled the function, and files that
 * share a process share its functions.
 */
class CoverageSession {
  readonly #session = new Session();
  readonly #scripts = new Map<string, Debugger.ScriptParsedEventDataType>();

  async start(isMeasured: (url: string) => boolean): Promise<void> {
    this.#session.connect();
    this.#session.on('Debugger.scriptParsed', ({ params }) => {
      if (isMeasured(params.url)) this.#scripts.set(params.scriptId, params);
    });
    await this.#session.post('Debugger.enable');
    await this.#session.post('Profiler.enable');
    await this.#session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });
  }

  /** The counts since the last call. */
  async take(): Promise<ScriptCoverage[]> {
    const { result } = await this.#session.post('Profiler.takePreciseCoverage');
    const found: ScriptCoverage[] = [];
    for (const { scriptId, url, functions } of result) {
      if (!this.#scripts.has(scriptId)) continue;
      const { scriptSource } = await this.#session.post('Debugger.getScriptSource', { scriptId });
      found.push({ url, code: scriptSource, functions });
    }
    return found;
  }
}

let opened: Promise<CoverageSession> | undefined;

export function coverageSession(isMeasured: (url: string) => boolean): Promise<CoverageSession> {
  opened ??= (async () => {
    const session = new CoverageSession();
    await session.start(isMeasured);
    return session;
  })();
  return opened;
}
