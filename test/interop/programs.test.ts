// Several programs of ours on one address, with peers on rxe: stock rping at the other end of each.
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { ChildProgram } from '../link/netns.js';
import { corners, describeWithRxe } from './environment.js';
import { CARD, GUEST } from './guest/network.js';

const MAIN = fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url));
const PATIENCE = { timeout: 60_000 };
const PORTS = [7611, 7612, 7613, 7614];
const PINGS = 20;
const FAMILIES = [
  ['IPv4', CARD.ipv4, GUEST.ipv4, '0.0.0.0'],
  ['IPv6', CARD.ipv6, GUEST.ipv6, '::0'],
] as const;

/** Starts `wasm-roce rping` as a process of its own, whose notes are in its output. */
function rping(...args: string[]): ChildProgram {
  const options = ['--json', '-C', `${PINGS}`, '-V', '--ib-dev', CARD.interface, ...args];
  const command = [process.execPath, '--import', 'tsx', MAIN, 'rping', ...options];
  return new ChildProgram('sh', ['-c', 'exec "$@" 2>&1', 'sh', ...command]);
}

/** Reads the next lines of programs, and expects each to match. */
async function linesOf(programs: readonly ChildProgram[], expected: RegExp): Promise<string[]> {
  const lines = await Promise.all(programs.map((program) => program.line()));
  for (const line of lines) expect(line).toMatch(expected);
  return lines;
}

async function expectPings(programs: readonly ChildProgram[]): Promise<void> {
  for (const line of await linesOf(programs, /^\{/)) expect(JSON.parse(line)).toMatchObject({ ok: true, pings: PINGS });
  await Promise.all(programs.map((program) => program.stop()));
}

/** Links of the four programs: all alike, or two of each. */
const LINKS = [
  ['packet', 'packet', 'packet', 'packet'],
  ['udp', 'udp', 'packet', 'packet'],
] as const;

describeWithRxe('programs on one address', 1500, (environment) => {
  const all = LINKS.flatMap((links) => FAMILIES.map((family) => [links, ...family] as const));
  const rows = corners(all, ([[link], family]) => (link === 'packet') === (family === 'IPv4'));

  test.each(rows)('%s serve stock clients at once, each on a port of its own: %s', async (links, _, ours) => {
    const servers = links.map((link, i) => rping('-s', '-a', ours, '-p', `${PORTS[i]}`, '--link', link));
    await linesOf(servers, /^waiting for a client/);
    const clients = PORTS.map((port) =>
      environment.guest.run(`rping -c -V -v -C ${PINGS} -a ${ours} -p ${port} | grep -c 'ping data'`, PATIENCE),
    );
    expect((await Promise.all(clients)).map(Number)).toEqual(PORTS.map(() => PINGS));
    await expectPings(servers);
  });

  test.each(rows)('%s connect with one stock server at once: %s', async (links, _, __, theirs, any) => {
    await using _server = environment.guest.spawn(['rping', '-s', '-P', '-V', '-a', any, '-p', '7620']);
    await environment.guest.listening(7620, 'rdma');
    const clients = links.map((link) => rping('-c', '-a', theirs, '-p', '7620', '--link', link));
    await expectPings(clients);
  });
});
