/**
 * rdma_cm: connections by address and port, with messages to queue pair 1 of the peer's card.
 *
 * Two storeys. The core (`core.ts`) is the communication manager without sockets, queue pairs and clocks: messages and calls
 * go in with the time, messages, events and a deadline come out. What a program sees is built on it, with the names of
 * librdmacm:
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
 * - Each call answers when it is done, which for `connect` and `accept` means ESTABLISHED, or throws: `CmError` with the
 *   event that came instead and, when the peer refused, the reason by name.
 * - The same comes as events, with rdma_cm's names and parameters: `for await (const event of id.channel)`. Several ids may
 *   share an `EventChannel`. Who reads events may leave the promises alone.
 * - `createCmId(device, { space: 'UDP' })` resolves datagram services (SIDR) and joins groups: ESTABLISHED then brings
 *   address handle, queue pair and Q_Key.
 * - A queue pair that `createQp` made, or `useQp` was given, is brought through its states as the messages say, and to ERR
 *   when the connection ends. Without one the program does that itself: CONNECT_RESPONSE brings the attributes, `establish`
 *   goes on; a server asks `acceptAttributes`.
 * - A peer's farewell is answered at once, by the id itself. `close` says what fits the state: a refusal, or farewell.
 *
 * In the order of reading: `messages.ts` (what is said), `states.ts` and `connection.ts` (in which order), `core.ts`, then
 * `port.ts` (queue pair 1), `endpoint.ts` and `cmid.ts`.
 */
export {
  type CmEvent,
  type CmEventType,
  type DatagramDestination,
  EventChannel,
} from './channel.js';
export { CmError } from './cmerror.js';
export { CmId, createCmId } from './cmid.js';
export type { DerivedAttributes } from './derive.js';
export type { CmIdOptions, CmIdState, Established } from './endpoint.js';
export type { CmAddress, ConnectReply, ConnectRequest } from './events.js';
export { type ConnParam, UDP_QKEY } from './parameters.js';
export { RejectReason, type RejectReasonName, type SidrStatusName } from './reasons.js';
