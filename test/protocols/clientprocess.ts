/**
 * A program with connections to the servers of a test: sockets and connections with messages, which echo. It prints
 * `ready` and runs until it is ended.
 *
 * Arguments: our address, that of the servers, the ports of the two servers, the number of each
 */
import { once } from 'node:events';
import { type Connection, openDevice } from '../../src/index.js';
import { connect } from '../../src/net.js';

async function echo(connection: Connection): Promise<void> {
  for await (const { data } of connection) await connection.send(data);
}

const [address = '', host = '', netPort, messagePort, count] = process.argv.slice(2);
const device = await openDevice({ link: 'udp', addresses: [address] });
for (let i = 0; i < Number(count); i++) {
  const socket = connect({ device, host, port: Number(netPort) });
  await once(socket, 'connect');
  socket.pipe(socket);
  const connection = await device.connect({ host, port: Number(messagePort) });
  void echo(connection);
}
process.stdout.write('ready\n');
