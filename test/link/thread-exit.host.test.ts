// The end of a thread closes what the thread had open, however it ends.
import { once } from 'node:events';
import { closeSync, fstatSync, openSync, readdirSync, readFileSync, readlinkSync, rmSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { interfaceNames } from '../../src/link/names.js';
import { attachedProgram } from '../../src/link/xdp/features.js';
import { native } from '../../src/native.js';
import { eventually } from '../kit/eventually.js';
import { all, describeIf, programPrivilege, xdpPrivilege } from '../kit/privileges.js';
import { sh, vethPair } from './netns.js';
import './ownsockets.js';

const FILE = fileURLToPath(import.meta.url);
const ADDON = fileURLToPath(new URL(`../../prebuilds/linux-${process.arch}/wasm_roce.node`, import.meta.url));
const LOCKS = `/tmp/wasm-roce-test-${process.pid}.lock`;
const INDEX = new URL('../../dist/index.js', import.meta.url).href;
/** The ends of a thread, and the code that it runs for each. */
const EXITS = {
  'it runs out': '',
  'process.exit': 'process.exit(0)',
  'an exception': `setImmediate(() => { throw new Error('as wanted'); })`,
  terminate: undefined,
};
type ExitKind = keyof typeof EXITS;
const EXIT_KINDS = Object.keys(EXITS) as ExitKind[];

/** Runs a program in a thread that ends in a given way. @param look called with the program's result, before the end */
async function runThread<Answer>(program: string, exit: ExitKind, look: (answer: Answer) => void): Promise<void> {
  const code = `const { parentPort } = require('node:worker_threads');
    (async () => { ${program} })().catch(String).then((answer) => {
      parentPort.once('message', () => { ${EXITS[exit] ?? ''} });
      parentPort.postMessage(answer);
    });`;
  const worker = new Worker(code, { eval: true, argv: [], execArgv: [] });
  worker.on('error', () => {});
  const [answer] = await once(worker, 'message');
  const ended = new Promise((resolve) => worker.once('exit', resolve));
  try {
    look(answer);
  } finally {
    if (exit === 'terminate') await worker.terminate();
    else worker.postMessage('end');
    await ended;
  }
}

/** Returns what a file descriptor of this process refers to. The text differs between two sockets and two eventfds. */
function describeFd(fd: number): string {
  try {
    return `${readlinkSync(`/proc/self/fd/${fd}`)} ${readFileSync(`/proc/self/fdinfo/${fd}`, 'latin1')}`;
  } catch {
    return 'nothing';
  }
}

/** Returns the sockets, BPF programs, maps and links of this process. */
const xdpFds = () =>
  readdirSync('/proc/self/fd')
    .map((fd) => describeFd(Number(fd)).split(' ')[0] as string)
    .filter((what) => /^(socket:|anon_inode:bpf)/.test(what));

test.each(EXIT_KINDS)('file descriptors of the addon are closed when their thread ends: %s', async (exit) => {
  const file = openSync(FILE, 'r');
  let fds: number[] = [];
  let what: string[] = [];
  await runThread<number[]>(
    `const addon = require('${ADDON}');
    return [addon.nameLockTake('${LOCKS}', 7n), addon.eventfdOpen(), addon.netlinkListen(1),
      addon.joinGroup(Uint8Array.of(239, 1, 2, 3), 1), addon.dupFd(${file})];`,
    exit,
    (answer) => {
      fds = answer;
      what = fds.map(describeFd);
    },
  );
  expect(what).toHaveLength(5);
  expect(what).not.toContain('nothing');
  expect(native().nameLockIsTaken(LOCKS, 7n)).toBe(false);
  for (const [i, fd] of fds.entries()) expect(describeFd(fd)).not.toBe(what[i]);
  closeSync(file);
  rmSync(LOCKS);
});

test('a descriptor that was closed is not closed again, as its number may be in use', async () => {
  const opened: number[] = [];
  await runThread<number>(
    `const addon = require('${ADDON}');
    const fd = addon.eventfdOpen();
    addon.closeFd(fd);
    return fd;`,
    'it runs out',
    (fd) => {
      // The kernel gives the lowest free number next.
      while (!opened.includes(fd) && opened.length < 100) opened.push(openSync(FILE, 'r'));
    },
  );
  for (const fd of opened) {
    native().closeFd(fd);
    expect(fstatSync(fd).isFile()).toBe(true);
    closeSync(fd);
  }
});

test('a name that is released twice takes no other away', () => {
  const names = interfaceNames(process.pid);
  const release = names.bind('first') as () => void;
  release();
  const releaseSecond = names.bind('second') as () => void;
  release();
  expect([names.isBound('first'), names.isBound('second')]).toEqual([false, true]);
  releaseSecond();
  expect(names.isBound('second')).toBe(false);
});

test.each(EXIT_KINDS)('a device that listens can be opened twice in turn: %s', async (exit) => {
  for (let turn = 0; turn < 2; turn++)
    await runThread(
      `const { openDevice } = await import('${INDEX}');
      const device = await openDevice({ link: 'udp', interface: 'lo', addresses: ['127.99.1.1'], memoryBytes: 16 * 2 ** 20 });
      await device.listen({ port: 7778 });
      return 'listens';`,
      exit,
      (answer) => expect(answer).toBe('listens'),
    );
});

describeIf(all(xdpPrivilege(), programPrivilege('ip')), 'the xdp link', () => {
  beforeAll(() => vethPair(['lke0', 'lke1'], 198, 1500));
  afterAll(() => void sh('ip link del lke0'));
  const program = () => attachedProgram(Number(readFileSync('/sys/class/net/lke0/ifindex')));

  test.each([
    ['inline', 'terminate'],
    ['inline', 'process.exit'],
    ['worker', 'terminate'],
  ] as const)('its program and all that belongs to it end with the thread: mode %s, %s', async (mode, exit) => {
    const before = xdpFds();
    await runThread(
      `const { openDevice } = await import('${INDEX}');
      await openDevice({ link: 'xdp', mode: '${mode}', interface: 'lke0', memoryBytes: 16 * 2 ** 20 });
      return 'open';`,
      exit,
      (answer) => {
        expect(answer).toBe('open');
        expect(program()).toBeDefined();
        expect(xdpFds().length).toBeGreaterThan(before.length);
      },
    );
    expect(xdpFds()).toEqual(before);
    await eventually(() => expect(program()).toBeUndefined());
  });
});
