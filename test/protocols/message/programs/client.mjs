/** A client that prints a line at a step, at which the test kills it: it connects, has connected, sends, or streams. */
import { openDevice } from '../../../../dist/index.js';

const [, , address, host, step] = process.argv;
const device = await openDevice({ link: 'udp', addresses: [address] });
const connecting = device.connect({ host, port: 7471 });
if (step === 'connecting') console.log(step);
const connection = await connecting;
// When the RTU has left: a server that did not get it waits for half a minute.
if (step === 'connected') setTimeout(() => console.log(step), 50);
if (step === 'streaming')
  connection
    .stream()
    .on('error', () => {})
    .write(Buffer.alloc(1e6));
for (let i = 0; step === 'sending' && i < 1e6; i++) {
  if (i === 100) console.log(step);
  await connection.send(Buffer.alloc(1000));
  await connection.receive();
}
if (step === 'streaming') setTimeout(() => console.log(step), 50);
