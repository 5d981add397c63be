/** A service over rdma_cm of a server in memory, its log, and a connection of a client. */
import { Writable } from 'node:stream';
import { type ConnectionHandler, RdmaService } from '../../src/cli/endpoint/listener.js';
import { Log } from '../../src/cli/endpoint/log.js';
import { createMemoryHub, openDevice } from '../../src/index.js';

export const PEER = '10.0.0.2';
export const PORT = 7473;

/** The caller closes the two devices. */
export async function openService(handler: ConnectionHandler) {
  const hub = createMemoryHub();
  const device = await openDevice({ hub, addresses: ['10.0.0.1'] });
  const peer = await openDevice({ hub, addresses: [PEER] });
  const lines: string[] = [];
  const stream = new Writable({ write: (line, _, done) => done(void lines.push(`${line}`)) });
  const service = await RdmaService.open(peer, { port: PORT }, handler, new Log('text', stream));
  const connection = await device.connect({ host: PEER, port: PORT });
  return { device, peer, lines, service, connection };
}
