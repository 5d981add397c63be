/**
 * A process of ours that is killed in the midst of a connection. It tells its parent when there is one.
 * Arguments: `client` and the address and port to connect to, or `server` and the port to listen on.
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
