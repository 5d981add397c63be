/** The addresses of a peer: whether its connection manager answers at each of them. */
import type { CmCheck } from './check.js';
import type { CmConversation } from './cmconversation.js';
import type { CmWay } from './target.js';

/** Time in which a manager answers (ns), and how often a REQ is sent for it. */
const [ANSWER, REQUESTS] = [500e6, 3];

/** Asks for a service that nobody serves. @returns the reason for no answer; undefined if there is one */
async function unanswered(talk: CmConversation, way: CmWay): Promise<string | undefined> {
  let over: CmConversation;
  try {
    over = talk.over(await way.flow());
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
  const connection = await over.prepare({ serviceId: over.peer.unknownService });
  for (let sent = 0; sent < REQUESTS; sent++) {
    over.ask(connection);
    if ((await over.about(connection, ANSWER)) !== undefined) return undefined;
  }
  return 'no answer';
}

/** Number 60. */
export const GID_CHECK: CmCheck = {
  number: 60,
  name: 'every-gid',
  title: 'Every GID of the peer answers every GID of ours',
  clause: 'IBTA annex A17 (RoCEv2): a GID is an IP address of the port',
  sends: "from each of our addresses to each of the peer's, a REQ for a service that nobody serves",
  expects: 'an answer to each, from the address that was asked; their numbers are gid_pairs and reached_gid_pairs',
  counts: ['gid_pairs', 'reached_gid_pairs'],
  connects: { service: false },
  async run(talk) {
    const { srcIp, dstIp } = talk.port.flow;
    const { ways = [{ from: srcIp, to: dstIp, flow: async () => talk.port.flow }] } = talk.peer;
    const failed: string[] = [];
    for (const way of ways) {
      const why = await unanswered(talk, way);
      if (why !== undefined) failed.push(`${way.from} to ${way.to}: ${why}`);
    }
    talk.measure('gid_pairs', ways.length);
    talk.measure('reached_gid_pairs', ways.length - failed.length);
    if (failed.length === ways.length) talk.notApplicable(`such a REQ has no answer at all: ${failed.join('; ')}`);
    if (failed.length > 0) talk.fail(`${failed.length} of ${ways.length} pairs are not reached: ${failed.join('; ')}`);
  },
};
