/**
 * The messages between the broker and its programs. A program has one connection for each device; each request has an
 * `id`, and the reply has the same one.
 *
 * - `join` with `addresses`, and `onlyLocal` if the device takes its packets from the interfaces itself: a slot. Reply:
 *   `slot` and `secret`, with two file descriptors: the lease, and the vault (src/broker/vault.ts). The slot is the
 *   device's until every duplicate of the lease is closed.
 * - `rejoin` with `slot`, `secret`, `services` and `isAgent`, and the vault: the same slot, from the next broker. Reply
 *   as to `join`, without the lease.
 * - `socket` with an address: the socket that is lent to the device. Reply: one file descriptor.
 * - `release` with an address: the socket is no longer used.
 * - `listen`, `unlisten` with an address and a service id: requests of the CM to it reach the device, or no longer.
 * - `rdmaCm` with `interface`, `addresses` and `guid`: opens a file of rdma_cm (src/broker/rdmacm/program.ts) for a
 *   program that has no CM. Reply: `file`, with two file descriptors, of its commands and its events. `addresses` are
 *   the program's GIDs, in the order of its table; `guid` has 16 hexadecimal digits.
 * - `faults` with `rules` and `seed`, from a program that is served: rules of faults of its device.
 * - `idleFaults`: Reply: `idle`, the rules among these that have hit no packet.
 * - `agent`: the device handles messages to queue pair 1, also those that are for nobody, which it refuses.
 *
 * Devices of Node serve their controllers. The programs of the library (native/verbs) do not: their `join` and `rejoin`
 * have `isServed`, and `addresses` in the order of the GID table. The broker serves their controllers
 * (src/broker/control) by messages without an `id`, which have no reply:
 *
 * - `gate` to the program, with a file descriptor: frames pass by this stream from now on (framefilter.ts).
 * - `host` to the program: it shows a port that `isDown`, a device that `hasFailed`, and the addresses `gids` as its
 *   GID table.
 * - `stat` to the program, and `stat` back, with a file descriptor of a file: the DeviceStat as JSON.
 *
 * A connection that begins with `programs` is that of a controller (src/verbs/diagnose), which must be of the broker's
 * user or of root. Reply: `programs`, each with `number`, `slot`, `pid` and `uid`.
 *
 * - `control` with the `number` of a program: reply with one end of a stream. The program gets the other end with a
 *   message `control` of the broker, which has no `id`.
 */
import { ipBytes } from '../../base/address.js';
import type { Message } from '../../base/message.js';
import { type ErrorCode, textOf, VerbsError } from '../../errors.js';

/** The broker's name, in the abstract namespace of Unix sockets, which belongs to the network namespace. */
export const BROKER_NAME = 'wasm-roce/broker';
/** Of the messages and of the vault. A broker refuses programs with another one. */
export const PROTOCOL_VERSION = 2;

/** An address of the host. */
export interface HostAddress {
  readonly address: string;
  /** Index of the interface of a link-local address, else 0. */
  readonly scope: number;
}

/** A listener of the CM on an address. */
export interface Service extends HostAddress {
  readonly id: bigint;
}

/** Returns the key of an address: its text, with its zone. */
export const addressKey = ({ address, scope }: HostAddress): string => (scope === 0 ? address : `${address}%${scope}`);

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;

/** Returns the address in a message. @throws TypeError if there is none */
export function addressIn({ address, scope }: Message): HostAddress {
  if (typeof address !== 'string' || !isCount(scope)) throw new TypeError('no address');
  ipBytes(address);
  return { address, scope };
}

/** Returns the addresses in a message. @throws TypeError if there are none */
export function addressesIn({ addresses }: Message): HostAddress[] {
  if (!Array.isArray(addresses)) throw new TypeError('no addresses');
  return addresses.map((each) => addressIn(each as Message));
}

/** Returns a listener as it is in messages. */
export const serviceMessage = ({ id, address, scope }: Service): Message => ({
  service: id.toString(16),
  address,
  scope,
});

/** Returns the listener in a message. @throws TypeError if there is none */
export function serviceIn(message: Message): Service {
  const { service } = message;
  if (typeof service !== 'string' || !/^[0-9a-f]{1,16}$/.test(service)) throw new TypeError('no service id');
  return { ...addressIn(message), id: BigInt(`0x${service}`) };
}

/** Returns the part of a reply that gives the reason of a refusal. An error of another class means a wrong request. */
export function errorMessage(error: unknown): Message {
  if (error instanceof VerbsError) return { error: error.code, message: textOf(error) };
  return { error: 'EINVAL', message: (error as Error).message };
}

/** Returns the error in a reply; undefined if the request is not refused. */
export function errorIn({ error, message }: Message): VerbsError | undefined {
  return error === undefined ? undefined : new VerbsError(String(error) as ErrorCode, String(message));
}
