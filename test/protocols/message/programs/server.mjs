/** A server as in the README: it echoes messages until SIGTERM, and prints how each connection has ended. */
import { openDevice } from '../../../../dist/index.js';

const device = await openDevice({ link: 'udp', addresses: [process.argv[2]] });
const server = await device.listen({ port: 7471 });
process.once('SIGTERM', () => device.close());
console.log('listening');
for await (const request of server) {
  const connection = await request.accept({ keepAlive: 200, peerTimeout: 2000 });
  serve(connection).then(
    () => console.log('end'),
    (error) => console.log(error.status ?? error.cause?.code ?? error.code),
  );
}
console.log('closed');

async function serve(connection) {
  for await (const { data } of connection) await connection.send(data);
  await connection.close();
}
