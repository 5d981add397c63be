/** Services that answer messages: with the same, or with what a peer must know to reach the regions. */
import type { Connection, Pd } from '../../index.js';
import type { Work } from './listener.js';
import type { Offer } from './regions.js';

/** Every message goes back as it came. */
export function echoWork(messageBytes: number): Work {
  return {
    accept: { messageBytes },
    async serve(connection: Connection) {
      for await (const { data, imm } of connection) await connection.send(data, imm === undefined ? {} : { imm });
    },
  };
}

/**
 * Who connects is told at once which regions there are, in one message: a JSON array. Any message of the peer's asks for it
 * once more.
 * @param pd the regions' domain @param offers what there is at the time
 */
export function regionsWork(pd: Pd, offers: () => readonly Offer[]): Work {
  const tell = (connection: Connection) => connection.send(Buffer.from(JSON.stringify(offers())));
  return {
    accept: { pd },
    async serve(connection: Connection) {
      await tell(connection);
      for await (const _question of connection) await tell(connection);
    },
  };
}
