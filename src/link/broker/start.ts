/** Finds the broker of this network namespace, or starts one. */
import { spawn } from 'node:child_process';
import { constants } from 'node:os';
import { basename } from 'node:path';
import { performance, sleep } from '../../base/timers.js';
import { VerbsError } from '../../errors.js';
import { native } from '../../native.js';
import { packageFile } from '../../packagefile.js';
import { errnoName } from '../errno.js';
import { BROKER_NAME } from './protocol.js';

/** Bound by the process that starts a broker, so that a crowd of programs starts one. */
const STARTING_NAME = `${BROKER_NAME}/starting`;
/** Time that a broker has to start (ms). */
const START_MS = 10_000;
const RETRY_MS = 10;
/** Time without programs after which a broker that was started on demand ends (s). */
const IDLE_S = 5;
const COMMAND = packageFile('dist/cli/main.js');

/**
 * Connects to the broker, which is started if there is none.
 * @returns a connected socket
 * @throws VerbsError EOPNOTSUPP if no broker can be started here, with the reason; ETIMEDOUT
 */
export async function connectBroker(): Promise<number> {
  const until = performance.now() + START_MS;
  let starting = -1;
  let started: Started | undefined;
  try {
    for (;;) {
      const fd = native().unix.connect(BROKER_NAME);
      if (fd >= 0) return fd;
      const code = errnoName(fd);
      if (code !== 'ECONNREFUSED' && code !== 'EAGAIN')
        throw new VerbsError('EOPNOTSUPP', `Unix sockets do not work here (${code})`);
      if (started?.failed !== undefined) throw new VerbsError('EOPNOTSUPP', started.failed);
      if (performance.now() > until)
        throw new VerbsError('ETIMEDOUT', `the broker does not answer within ${START_MS} ms`);
      if (starting < 0) starting = native().unix.listen(STARTING_NAME);
      if (starting >= 0) started ??= startBroker();
      else if (starting !== -constants.errno.EADDRINUSE)
        throw new VerbsError('EOPNOTSUPP', `Unix sockets do not work here (${errnoName(starting)})`);
      await sleep(RETRY_MS);
    }
  } finally {
    if (starting >= 0) native().closeFd(starting);
  }
}

/** Whether the network namespace has a broker. */
export function hasBroker(): boolean {
  const fd = native().unix.connect(BROKER_NAME);
  if (fd >= 0) native().closeFd(fd);
  return fd >= 0;
}

/** A broker that was started. */
interface Started {
  /** The reason for its end; undefined as long as it runs. */
  failed?: string;
}

/** Returns the program and the arguments of a broker that ends some seconds after its last program. */
export function brokerCommandLine(): [program: string, ...args: string[]] {
  return [process.execPath, COMMAND, 'broker', '--idle', `${IDLE_S}`];
}

/**
 * Starts a broker that outlives this process: in a session of its own, without its terminal, files and environment.
 * @throws VerbsError EOPNOTSUPP
 */
function startBroker(): Started {
  const [execPath, ...args] = brokerCommandLine();
  // a program that is one file with Node inside would start itself
  if (!/^(node|nodejs)[\d.]*$/.test(basename(execPath)))
    throw new VerbsError('EOPNOTSUPP', `${execPath} cannot run the broker: start \`wasm-roce broker\` as a service`);
  const state: Started = {};
  try {
    const { PATH = '' } = process.env;
    const child = spawn(execPath, args, {
      detached: true,
      stdio: 'ignore',
      cwd: '/',
      env: { PATH },
    });
    child.on('error', ({ message }) => {
      state.failed = `the broker cannot be started: ${message}`;
    });
    child.on('exit', (status, signal) => {
      state.failed = `the broker ended at once (${signal ?? `exit status ${status}`}): \`wasm-roce broker\` says why`;
    });
    child.unref();
  } catch (error) {
    // without the right to start processes (Node's permission model)
    state.failed = `the broker cannot be started: ${(error as Error).message}`;
  }
  return state;
}
