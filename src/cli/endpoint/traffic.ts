/**
 * A service that sends requests on demand, so that a client can see what our requester does. Each message of a client
 * is an order: a JSON object with a kind, a length and a count, and for WRITE and READ the client's memory. Nothing is
 * answered but by the requests themselves.
 */
import * as z from 'zod';
import type { Connection } from '../../index.js';
import { failure } from '../exit.js';
import type { ConnectionHandler } from './listener.js';

/** The most bytes of a request; requests have one message each. */
const MAX_BYTES = 16_384;
/** The most requests of an order. */
const MAX_COUNT = 65_536;
/** Requests of a connection that are posted and not complete; the orders that wait for them are not read. */
const IN_FLIGHT = 64;
/** Orders that may arrive before they are read. */
const RECEIVES = 8;
/** Time that a client may send no order (ms). There are no keep-alives, as they would be requests. */
const IDLE_MS = 60_000;

/** The order of a client. */
const Order = z.object({
  opcode: z.enum(['SEND', 'WRITE', 'READ']),
  length: z.int().min(0).max(MAX_BYTES),
  count: z.int().min(1).max(MAX_COUNT),
  /** The client's memory, for WRITE and READ. */
  addr: z.int().min(0).default(0),
  rkey: z.int().min(0).max(0xffffffff).default(0),
});

/** One order of a client, as it is sent. */
export type TrafficOrder = z.input<typeof Order>;

/** The bytes of all SENDs and WRITEs. */
const ZEROES = Buffer.alloc(MAX_BYTES);

/**
 * Sends what each client orders, in the order of its messages.
 * @param idleMs time that a client may send no order
 */
export function trafficHandler(idleMs = IDLE_MS): ConnectionHandler {
  return {
    accept: { messageBytes: MAX_BYTES, receives: RECEIVES, sends: IN_FLIGHT, keepAlive: 0 },
    async serve(connection: Connection) {
      const inFlight: Promise<unknown>[] = [];
      for (;;) {
        const message = await connection.receive({ timeout: idleMs });
        if (message === undefined) return;
        const order = orderIn(message.data);
        for (let i = 0; i < order.count && connection.isOpen; i++) {
          // they complete in their order
          if (inFlight.length === IN_FLIGHT) await inFlight.shift();
          // one that fails ends the connection
          inFlight.push(post(connection, order).catch(() => {}));
        }
      }
    },
  };
}

/** @throws CliError when the message is no order */
function orderIn(message: Buffer): z.output<typeof Order> {
  let value: unknown;
  try {
    value = JSON.parse(message.toString('utf8'));
  } catch {
    throw failure(`an order of the client has ${message.length} bytes that are no JSON`, { code: 'EPROTO' });
  }
  const { data, error } = Order.safeParse(value);
  if (data !== undefined) return data;
  const problems = error.issues.map(({ path, message }) => [...path, message].join(': '));
  throw failure(`an order of the client is wrong: ${problems.join('; ')}`, { code: 'EPROTO' });
}

function post(connection: Connection, { opcode, length, addr, rkey }: z.output<typeof Order>): Promise<unknown> {
  const remote = { addr, rkey, length };
  const bytes = ZEROES.subarray(0, length);
  if (opcode === 'SEND') return connection.send(bytes);
  return opcode === 'WRITE' ? connection.write(remote, bytes) : connection.read(remote);
}
