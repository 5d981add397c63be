// Servers, bound sockets and pending waits keep the process running. A device does so only on request.
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ROOT } from '../repo/sources.js';

/** A limit for programs that should end at once: a process that is kept running stays for good. */
const LIMIT = 20_000;
/** Shows whether the process is still running after a while. */
const LATER = `setTimeout(() => { console.log('still here'); process.exit(); }, 300).unref();`;

/** Runs a program that may await. @returns its output */
function run(program: string): string {
  const args = ['--import', 'tsx', '--input-type=module', '-e', program];
  return execFileSync(process.execPath, args, { cwd: ROOT, timeout: LIMIT, encoding: 'utf8' });
}

/** Runs a program with two connected devices `a` and `b`. */
function runWithPair(program: string, options = '{}'): string {
  const pair = join(import.meta.dirname, 'pair.ts');
  return run(`import { connectedPair } from '${pair}'; const { a, b } = await connectedPair(${options}); ${program}`);
}

test('an idle device does not keep the process running', () => {
  expect(runWithPair(LATER)).toBe('');
});

test('a wait for a completion keeps the process running', () => {
  expect(runWithPair(`${LATER} await a.cq.next();`)).toBe('still here\n');
});

test('a connected queue pair keeps the process running with keepAlive', () => {
  const options = '{ open: { keepAlive: true } }';
  expect(runWithPair(LATER, options)).toBe('still here\n');
  expect(runWithPair(`await a.qp.close(); await b.qp.close(); ${LATER}`, options)).toBe('');
});

test('a server keeps the process running until unref, and a device after ref', () => {
  const runWithServer = (body: string) =>
    run(`
    import { openDevice } from './src/index.ts';
    const device = await openDevice({ link: 'memory' });
    const server = await device.listen(7471);
    server.on('connection', () => {});
    ${body}`);
  expect(runWithServer(`server.unref(); ${LATER}`)).toBe('');
  expect(runWithServer(LATER)).toBe('still here\n');
  expect(runWithServer(`server.unref(); device.ref(); ${LATER}`)).toBe('still here\n');
});

test('a bound datagram socket keeps the process running until unref', () => {
  const runWithSocket = (body: string) =>
    run(`
    import { createMemoryHub, openDevice } from './src/index.ts';
    const device = await openDevice({ link: 'memory', hub: createMemoryHub() });
    const socket = await device.createSocket().bind(7471);
    ${body}`);
  expect(runWithSocket(`socket.unref(); ${LATER}`)).toBe('');
  expect(runWithSocket(LATER)).toBe('still here\n');
  expect(runWithSocket(`setTimeout(() => socket.close(), 50).unref(); ${LATER}`)).toBe('');
});
