/**
 * npm run soak -- broker: ten programs on one address, of which five come and go, while the broker and they are killed,
 * and the broker is stopped. No connection of the five that stay may end, and no byte may be wrong.
 *
 *   --minutes N   how long (10); on two processors that is about a thousand kills
 */
import { parseArgs } from 'node:util';
import { churn } from '../broker/churn.js';
import { Program, UNPRIVILEGED } from '../broker/programs.js';
import { Random } from '../kit/random.js';

const { values } = parseArgs({
  options: { minutes: { type: 'string', default: '10' } },
});
const minutes = Number(values.minutes);
if (!(minutes > 0)) throw new RangeError(`--minutes is ${values.minutes}, must be a positive number`);

const ADDRESSES = ['127.0.0.1', '::1'];
const seed = Math.floor(Math.random() * 2 ** 31);
const until = performance.now() + minutes * 60_000;
console.log(`seed ${seed}`);
const result = await churn({
  ...{ stay: 5, addresses: ADDRESSES, random: new Random(seed), brokerKills: 8 },
  start: (number) =>
    Program.serve(undefined, number, { link: 'udp', interface: 'lo', addresses: ADDRESSES }, UNPRIVILEGED),
  goesOn: (done) => {
    if (done > 0 && done % 25 === 0) console.log(`${done} programs have come and gone`);
    return performance.now() < until;
  },
});
console.log(result);
process.exit(result.wrong + result.ended + result.failed.length === 0 ? 0 : 1);
