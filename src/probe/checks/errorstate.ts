/** Checks of a queue pair that has refused a request for good: it is in error. */
import { bytesHex } from '../packet/hex.js';
import { request } from '../packet/packets.js';
import { psnAfter } from '../packet/psn.js';
import type { ResponderCheck } from './check.js';
import { badKey } from './keys.js';
import { isSame, pattern, type ResponderConversation } from './responderconversation.js';

/** Bytes of the WRITEs that must not be carried out. */
const [first, second] = [pattern(8, 2), pattern(8, 3)];

/** Puts the peer's queue pair into error, by a WRITE with a key that does not exist. */
async function breakConnection(talk: ResponderConversation): Promise<void> {
  const { va } = talk.region;
  talk.send(request.writeOnly({ psn: talk.psn, va, rkey: badKey(talk), payload: pattern(8, 1), ackReq: true }));
  await talk.fatal('a WRITE with a bad key', talk.psn);
}

/** Sends WRITEs after the NAK. Answers to them are what the check `error-after-nak` looks at. */
async function writeAgain(talk: ResponderConversation): Promise<void> {
  talk.send([...talk.write(first), ...talk.write(second)]);
  if ((await talk.next(20e6)) !== undefined) talk.notApplicable('the queue pair goes on after a fatal NAK');
}

const repeats: ResponderCheck = {
  number: 39,
  name: 'error-repeats',
  title: 'A queue pair in error does not answer repeated requests either',
  clause: 'IBTA volume 1, chapter 10: queue pair states, error state',
  sends: 'a WRITE, a READ and a FETCH_ADD; a WRITE with a bad key; after its NAK good ones, and the three of before',
  expects: 'no answer',
  needs: { receives: false },
  isIntrusive: true,
  async run(talk) {
    const { va, rkey } = talk.region;
    const written = talk.write(pattern(8, 1));
    await talk.done(written, 'a WRITE');
    const read = request.read({ psn: talk.take(), va, rkey, length: 8 });
    const add = request.fetchAdd({ psn: talk.take(), va, rkey, add: 1n });
    for (const one of [read, add]) {
      talk.send(one);
      await talk.answer('a READ or FETCH_ADD');
    }
    await breakConnection(talk);
    await writeAgain(talk);
    for (const one of [...written, read, add]) {
      talk.send(one);
      await talk.silent('a repeated request to a queue pair in error');
    }
  },
};

const execution: ResponderCheck = {
  number: 39,
  name: 'error-execution',
  title: 'A queue pair in error does not carry out requests',
  clause: 'IBTA volume 1, chapter 10: queue pair states, error state',
  sends: 'a WRITE with a bad key, after its NAK good ones with its PSN and the next; a READ on another connection',
  expects: 'memory as it was before',
  needs: { receives: false },
  isIntrusive: true,
  async run(talk) {
    const before = pattern(8, 1);
    await talk.done(talk.write(before), 'a WRITE');
    const other = await talk.another();
    if (other.region.rkey !== talk.region.rkey) talk.notApplicable('each connection has memory of its own');
    await breakConnection(talk);
    const { psn } = talk;
    await writeAgain(talk);
    const after = await other.read(0, 8, talk.region);
    if (isSame(after, before)) return;
    const index = [first, second].findIndex((bytes) => isSame(after, bytes));
    if (index >= 0) talk.fail(`a WRITE of PSN ${psnAfter(psn, index)} was carried out after the NAK`);
    talk.fail(`after the NAK memory holds ${bytesHex(after)} instead of ${bytesHex(before)}, which nobody has written`);
  },
};

/** In the order of their numbers. */
export const ERROR_CHECKS: readonly ResponderCheck[] = [repeats, execution];
