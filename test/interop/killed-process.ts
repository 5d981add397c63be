/**
 * A process that a test kills while it has a connection. It notifies its parent when the connection is established.
 * Arguments: `client`, the port and the address to connect to, or `server` and the port to listen on.
 */
import { openDevice } from '../../src/index.js';
import { CARD } from './guest/network.js';

const [role, port, host = ''] = process.argv.slice(2);
const device = await openDevice({ link: 'packet', interface: CARD.interface });
if (role === 'client') {
  await device.connect({ host, port: Number(port) });
} else {
  const server = await device.listen({ port: Number(port) });
  process.send?.('listening');
  for await (const request of server) {
    await (await request.accept()).receive();
    break;
  }
}
process.send?.('connected');
