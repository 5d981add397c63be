/** Notifies systemd, or another manager that speaks its protocol, of the service's state (sd_notify(3)). */
import { getSystemErrorName } from 'node:util';
import { native } from '../../native.js';
import type { Log } from './log.js';

/**
 * Notifies the manager, if it asks for that with NOTIFY_SOCKET. What keeps a notification from being sent is logged.
 * @param state assignments, `READY=1` for instance
 */
export function notify(log: Log, ...state: readonly string[]): void {
  const socket = process.env.NOTIFY_SOCKET;
  if (socket === undefined || socket === '') return;
  try {
    const result = native().notify(socket, state.join('\n'));
    if (result < 0) throw new Error(`${socket} takes no notification (${getSystemErrorName(result)})`);
  } catch (error) {
    log.error('systemd not notified', error, { state: state.join(' ') });
  }
}
