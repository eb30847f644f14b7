import { type ChildProcessByStdio, execFileSync, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';

/** Of `tools/compat/kv_event_subscriber.py`. */
export interface PythonCheck {
  readonly agrees: boolean;
  readonly next: number;
  readonly stored_below: readonly string[];
  readonly without_tokens: number;
  readonly live: number;
  readonly replayed: number;
  readonly restarts: number;
}

const environment = 'tools/compat/build/kv-events/bin/python';
const candidates = [existsSync(environment) ? environment : 'python3'];

/** A Python with the subscriber's packages; undefined if there is none. */
export const subscriberPython = candidates.find((python) => {
  try {
    execFileSync(python, ['-c', 'import zmq, msgpack'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
});
export const noSubscriberPython =
  'no python3 with pyzmq and msgpack: pip install -r tools/compat/requirements/kv-events.txt';

type SubscriberProcess = ChildProcessByStdio<Writable, Readable, null>;

/** The subscriber in Python, as a process that answers commands. */
export class PythonSubscriber {
  readonly process: SubscriberProcess;
  readonly #lines: AsyncIterator<string>;

  private constructor(process: SubscriberProcess) {
    this.process = process;
    this.#lines = createInterface(process.stdout)[Symbol.asyncIterator]();
  }

  static async start(python: string, server: string, endpoint: string, replay: string): Promise<PythonSubscriber> {
    const args = ['--server', server, '--endpoint', endpoint, '--replay', replay];
    const subscriber = new PythonSubscriber(
      spawn(python, ['tools/compat/kv_event_subscriber.py', ...args], { stdio: ['pipe', 'pipe', 'inherit'] }),
    );
    await subscriber.#answer();
    return subscriber;
  }

  check(): Promise<PythonCheck> {
    return this.#command('check') as Promise<PythonCheck>;
  }

  async connect(): Promise<void> {
    await this.#command('connect');
  }

  async disconnect(): Promise<void> {
    await this.#command('disconnect');
  }

  kill(): void {
    this.process.kill('SIGKILL');
  }

  async #command(command: string): Promise<unknown> {
    this.process.stdin.write(`${command}\n`);
    return this.#answer();
  }

  async #answer(): Promise<unknown> {
    const { value, done } = await this.#lines.next();
    if (done === true) throw new Error(`the subscriber in Python has ended with ${this.process.exitCode}`);
    return JSON.parse(value) as unknown;
  }
}
