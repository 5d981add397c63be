// `wasm-roce endpoint` and the stock programs: one process serves all of them, one after the other and at the same
// time.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { within } from '../../src/base/within.js';
import { type Running, start } from '../cli/run.js';
import { describeWithRxe } from './environment.js';
import { CARD } from './guest/network.js';
import { stockRow } from './perftest.js';

/** Returns the number of rping clients that have connected. */
const pingers = (log: string) => log.split(' connected service=rping').length - 1;
const PATIENCE = { timeout: 60_000 };

describeWithRxe('an endpoint', 9000, (environment) => {
  const folder = mkdtempSync(join(tmpdir(), 'wasm-roce-'));
  const path = join(folder, 'endpoint.yaml');
  const configure = (...services: string[]) =>
    writeFileSync(
      path,
      `interface: ${CARD.interface}\nlink: packet\nservices:\n${services.map((s) => `- ${s}\n`).join('')}`,
    );
  const RPING = '{ type: rping }';
  const WRITE_BW = '{ type: write-bw, port: 18515 }';
  const SEND_LAT = '{ type: send-lat, port: 18516, iters: 50 }';
  /** Starts an endpoint for the test, so that a repeated test has one, too. */
  const serve = async (...services: string[]): Promise<Running> => {
    configure(...services);
    const serving = start(['endpoint', path]);
    await serving.prints((text) => text.includes(' ready '));
    return serving;
  };

  afterAll(() => {
    rmSync(folder, { recursive: true });
  });

  const rping = (count: number) => ['rping', '-c', '-a', CARD.ipv4, '-V', '-v', '-C', String(count)];
  const perftest = (tool: string, port: number, ...words: string[]) =>
    [`ib_${tool}`, '-d', 'rxe0', '-F', '-x', '1', '-p', String(port), ...words, CARD.ipv4] as const;

  test('rping, ib_write_bw and ib_send_lat are served any number of times', async () => {
    await serve(RPING, WRITE_BW, SEND_LAT);
    for (const round of [1, 2]) {
      const pings = await environment.guest.run(rping(round), PATIENCE);
      expect(pings.match(/^ping data: rdma-ping-/gm)).toHaveLength(round);
      const bandwidth = await environment.guest.run(perftest('write_bw', 18515, '-n', '100'), PATIENCE);
      expect(bandwidth).toMatch(stockRow(65_536, 100));
    }
    expect(await environment.guest.run(perftest('send_lat', 18516, '-n', '50'), PATIENCE)).toMatch(stockRow(2, 50));
  });

  test('a ping goes on during ib_write_bw, and while a service is removed and added again', async () => {
    const serving = await serve(RPING, WRITE_BW);
    await using pinging = environment.guest.spawn(['rping', '-c', '-a', CARD.ipv4, '-V']);
    await serving.prints((text) => pingers(text) === 1);
    await environment.guest.run(perftest('write_bw', 18515, '-n', '100'), PATIENCE);
    configure(RPING);
    serving.child.kill('SIGHUP');
    await serving.prints((text) => text.split(' reloaded\n').length === 2);
    expect((await environment.guest.exec(perftest('write_bw', 18515, '-n', '5'), PATIENCE)).status).not.toBe(0);
    configure(RPING, WRITE_BW);
    serving.child.kill('SIGHUP');
    await serving.prints((text) => text.split(' reloaded\n').length === 3);
    await environment.guest.run(perftest('write_bw', 18515, '-n', '100'), PATIENCE);
    // the client is still running; it would have ended after an error
    expect((await pinging.kill(2)).status).not.toBe(0);
  });

  test('SIGTERM disconnects the client, and the log has all clients', async () => {
    const serving = await serve(RPING, WRITE_BW, SEND_LAT);
    await environment.guest.run(perftest('write_bw', 18515, '-n', '100'), PATIENCE);
    await environment.guest.run(perftest('send_lat', 18516, '-n', '50'), PATIENCE);
    await using pinging = environment.guest.spawn(['rping', '-c', '-a', CARD.ipv4, '-V', '-v']);
    await serving.prints((text) => pingers(text) === 1);
    serving.child.kill('SIGTERM');
    const { status, stdout, stderr } = await serving.ended;
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    const hasEnded = await within(
      30_000,
      pinging.exited.then(() => {}),
    );
    expect(hasEnded, `the client goes on after ${pinging.stderr}; the endpoint: ${stdout}`).toBe(true);
    expect(pinging.stdout + pinging.stderr).toMatch(/DISCONNECT/);
    expect(stdout.match(/ info {2}disconnected service=rping /g)).toHaveLength(1);
    expect(stdout.match(/ info {2}disconnected service=write-bw .* writes=100 .*mibPerSecond=/g)).toHaveLength(1);
    expect(stdout.match(/ info {2}disconnected service=send-lat .*typicalUs=/g)).toHaveLength(1);
  });
});
