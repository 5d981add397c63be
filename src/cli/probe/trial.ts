/** Finds by requests what a server permits that does not tell: those of perftest permit one operation each. */
import { type Operation, type RemoteOperation, type Responder, type ResponderCheck, runCheck } from '../../probe.js';

/** Operations on memory. */
export const REMOTE: readonly RemoteOperation[] = ['WRITE', 'READ', 'ATOMIC'];
/** All operations. */
export const OPERATIONS: readonly Operation[] = [...REMOTE, 'SEND'];
/** Repetitions of a SEND, and the wait after each (ns), until the server has posted its receives. */
const [READY_TRIES, READY_WAIT] = [25, 20e6];

/** One request of the operation that the responder permits, which has to be carried out. */
const TRIAL: ResponderCheck = {
  ...{ number: 0, name: 'trial', title: 'The operation is permitted', clause: 'none' },
  ...{ sends: 'a request', expects: 'it is carried out', needs: { receives: false, permits: [] } },
  async run(talk) {
    const packet = talk.request();
    for (let tries = 0; tries < READY_TRIES; tries++) {
      talk.send(packet);
      const answer = await talk.answer('a request');
      const kind = (answer.aeth?.syndrome ?? 0) >>> 5;
      if (kind === 0) return;
      if (kind !== 1) talk.fail('the request is refused');
      await talk.next(READY_WAIT);
    }
    talk.fail('there is no receive');
  },
};

/** Requests an operation once. It takes the PSN of the responder. @returns whether it was carried out */
export async function isCarriedOut(responder: Responder, operation: Operation): Promise<boolean> {
  const permits = REMOTE.filter((one) => one === operation);
  const only = { ...responder, permits, receives: operation === 'SEND' ? 1 : 0 };
  const { verdict } = await runCheck(TRIAL, { responder: async () => only });
  return verdict === 'pass';
}
