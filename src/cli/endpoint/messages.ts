/** Services that answer messages: echo, and the list of regions. */
import type { Connection, Pd } from '../../index.js';
import type { ConnectionHandler } from './listener.js';
import type { RegionInfo } from './regions.js';

/** Returns every message unchanged. */
export function echoHandler(messageBytes: number): ConnectionHandler {
  return {
    accept: { messageBytes },
    async serve(connection: Connection) {
      for await (const { data, imm } of connection) await connection.send(data, imm === undefined ? {} : { imm });
    },
  };
}

/**
 * Sends each client the list of regions, as a JSON array in one message: once it has connected, and again in answer to
 * each message.
 * @param pd the protection domain of the regions
 * @param regionInfos returns the current regions
 */
export function regionsHandler(pd: Pd, regionInfos: () => readonly RegionInfo[]): ConnectionHandler {
  const sendRegions = (connection: Connection) => connection.send(Buffer.from(JSON.stringify(regionInfos())));
  return {
    accept: { pd },
    async serve(connection: Connection) {
      await sendRegions(connection);
      for await (const _question of connection) await sendRegions(connection);
    },
  };
}
