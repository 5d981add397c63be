/**
 * rdma_cm: connections by address and port, negotiated by messages to queue pair 1 of the peer's card. The API has the
 * names of librdmacm:
 *
 *     client                                            server
 *     const id = createCmId(device);                    const listener = createCmId(device);
 *     await id.resolveAddr('10.0.0.2', 7174);           await listener.bindAddr('0.0.0.0', 7174);
 *     await id.resolveRoute();                          await listener.listen({ backlog: 16 });
 *     const qp = await id.createQp(pd, { sendCq });     const request = await listener.getRequest();
 *     qp.postRecv(...);                                 const qp = await request.createQp(pd, { sendCq });
 *     await id.connect({ privateData });                qp.postRecv(...);
 *                                                       await request.accept({ privateData });
 *     await id.disconnect();                            await request.disconnect();
 *     await id.close();                                 await request.close();
 *
 * - A call resolves when it is complete; `connect` and `accept` resolve with ESTABLISHED. A call that fails throws
 *   `CmError` with the event that arrived instead and, when the peer rejected, the reason by name.
 * - The same is reported as events, with the names and parameters of rdma_cm: `for await (const event of id.channel)`.
 *   Several ids can share an `EventChannel`. An application that reads events can ignore the promises.
 * - `createCmId(device, { space: 'UDP' })` resolves datagram services (SIDR) and joins multicast groups. ESTABLISHED
 *   then contains address handle, queue pair number and Q_Key.
 * - An id takes its queue pair (`createQp`, `useQp`) through the states, and to ERR when the connection ends. For an id
 *   without a queue pair the application does this: CONNECT_RESPONSE contains the attributes for the client,
 *   `establish` completes the connection; a server calls `acceptAttributes`.
 * - The id answers a DREQ by itself, at once. `close` ends a connection in any state: with a REJ or a DREQ.
 *
 * Words, as in IBTA chapter 12: the active side sends the REQ, the passive side the REP. A communication id names a
 * connection at one end (localCommId, remoteCommId). A SIDR exchange resolves a service id to a UD queue pair. Timewait
 * is the time after a connection during which its packets can still be in the network. A stale connection is one that
 * the peer no longer knows.
 *
 * Two layers. `core/` is the protocol: messages, calls and the time go in; messages, events and the next deadline come
 * out. It does no I/O, reads no clock, knows no verbs, and imports nothing above it. Above it, `madagent.ts` moves the
 * messages of queue pair 1 and runs the timer; `idconnection.ts` handles the events of one id; `cmid.ts` is the API.
 *
 * Invariants:
 * - `Connection.setState` is the only writer of a connection's state, and `states.ts` lists all transitions.
 * - The id's queue pair is in RTR before the REP is sent, in RTS before the RTU, and in ERR before the DREQ of
 *   `disconnect` and the DREP.
 * - Messages of peers never throw: invalid ones are counted and dropped.
 * - A card does not refuse a message for another card that has the same address (`sharedaddress.ts`).
 *
 * Everything runs on the application's thread. Only the MAD agent calls the core, and only through `callCore`, its
 * receive completions and its timer.
 *
 * Reading order: `core/messages.ts`, `core/states.ts`, `core/connection.ts`, `core/core.ts`, then `madagent.ts`,
 * `idconnection.ts` and `cmid.ts`.
 */
export {
  type CmEvent,
  type CmEventType,
  type DatagramDestination,
  type Established,
  EventChannel,
} from './channel.js';
export { CmError } from './cmerror.js';
export { CmId, type CmIdOptions, type CmIdState, createCmId } from './cmid.js';
export type { DerivedAttributes } from './core/derive.js';
export type { Ece } from './core/ece.js';
export type { CmAddress, ConnectReply, ConnectRequest } from './core/events.js';
export { RejectReason, type RejectReasonName, type SidrStatusName } from './core/reasons.js';
export { type ConnParam, UDP_QKEY } from './parameters.js';
