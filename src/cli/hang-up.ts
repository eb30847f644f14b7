import type { EngineEvent } from '../engine/contract.ts';
import type { CliContext } from './context.ts';
import type { Interruption } from './interrupt.ts';

export interface HangUpHooks {
  onEvent(event: EngineEvent): void;
  /** Called before and after a SIGHUP that changes nothing, for a service manager that waits for the end of a reload. */
  onBegin(): void;
  onEnd(): void;
}

/**
 * SIGHUP of a server that reads no file again. A terminal that is closed sends it, and then the server shuts down. Without a
 * terminal, the sender wants new settings, and must not end the server. (Node also resets the SIGHUP that `nohup` ignores.)
 */
export function handleHangUp(
  { signals, hasTerminal = false }: Pick<CliContext, 'signals' | 'hasTerminal'>,
  interruption: Interruption,
  { onEvent, onBegin, onEnd }: HangUpHooks,
): Disposable {
  const onHangUp = (): void => {
    if (hasTerminal) {
      interruption.hangUp();
      return;
    }
    onBegin();
    const message = 'SIGHUP changes nothing: settings are read at the start only. Restart the server.';
    onEvent({ level: 'warn', message, fields: {} });
    onEnd();
  };
  signals.on('SIGHUP', onHangUp);
  return { [Symbol.dispose]: () => void signals.off('SIGHUP', onHangUp) };
}
