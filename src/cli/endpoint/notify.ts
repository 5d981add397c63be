/** Tells systemd how far the service is (sd_notify(3)), where it asks for that. Node has no datagrams to Unix sockets. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { Log } from './log.js';

let told: Promise<void> = Promise.resolve();

/**
 * One after the other, as each is told by a process of its own.
 * @param state assignments, `READY=1` for instance
 */
export function notify(log: Log, ...state: readonly string[]): Promise<void> {
  told = told.then(() => tell(log, state));
  return told;
}

async function tell(log: Log, state: readonly string[]): Promise<void> {
  if (process.env.NOTIFY_SOCKET === undefined) return;
  try {
    await promisify(execFile)('systemd-notify', [...state]);
  } catch (error) {
    log.error('systemd was not told', error, { state: state.join(' ') });
  }
}
