/**
 * Serves a controller of the host's programs (`wasm-roce fault`, `wasm-roce stat`), which the broker has connected with
 * this device: lines of JSON over a stream. Each request has a `type` and an `id`, which its reply has too.
 */
import { Socket } from 'node:net';
import { type Message, parseMessage } from '../../base/message.js';
import { VerbsError } from '../../errors.js';
import { errorMessage } from '../../link/broker/protocol.js';
import { native } from '../../native.js';
import type { DeviceFault, FaultRuleOptions } from './faults.js';
import { onLines } from './lines.js';
import type { DeviceStat } from './stat.js';

/** The device, as a controller sees it. */
export interface ControlledDevice {
  readonly faults: readonly DeviceFault[];
  addFault(rule: string, options?: FaultRuleOptions): Promise<DeviceFault>;
  stat(): DeviceStat | Promise<DeviceStat>;
}

/** A rule of faults in replies. */
export interface FaultState {
  /** Number of the rule among those of its device. */
  readonly id: number;
  /** Its text. */
  readonly rule: string;
  /** Seed of a rule by chance. */
  readonly seed: number;
  /** Number of packets that it has hit. */
  readonly hits: number;
}

/** The result of each type of request. */
export interface ControlResults {
  readonly stat: DeviceStat;
  readonly faults: readonly FaultState[];
  /** Adds the `rule`, with `seed`. It ends with the stream, unless the request has `keep`. */
  readonly add: FaultState;
  /** Removes the rule with the number `fault`. */
  readonly remove: FaultState;
}

/** Most characters of a request. */
const MAX_REQUEST = 4096;
const stateOf = ({ id, rule, seed, hits }: DeviceFault): FaultState => ({ id, rule, seed, hits });

/**
 * Serves the controller at the other end of a stream, until it ends.
 * @param fd the file descriptor of the stream, which the function owns
 * @returns the stream; its end removes the rules that are not kept
 */
export function serveControl(device: ControlledDevice, fd: number): Socket {
  native().releaseFd(fd);
  const socket = new Socket({ fd, readable: true, writable: true });
  socket.unref();
  /** Rules that end with the stream. */
  const faults = new Set<DeviceFault>();
  const removeFaults = () => {
    for (const fault of faults) fault.remove().catch(() => {});
  };
  socket.on('error', () => socket.destroy());
  socket.on('close', removeFaults);
  onLines(socket, MAX_REQUEST, (line) => {
    void replyTo(device, line, faults).then((reply) => {
      if (socket.destroyed) removeFaults();
      else socket.write(`${JSON.stringify(reply)}\n`);
    });
  });
  return socket;
}

async function replyTo(device: ControlledDevice, line: string, faults: Set<DeviceFault>): Promise<Message> {
  const request = parseMessage(line) ?? {};
  const { id } = request;
  try {
    return { id, result: await execute(device, request, faults) };
  } catch (error) {
    return { id, ...errorMessage(error) };
  }
}

async function execute(
  device: ControlledDevice,
  { type, rule, seed, keep, fault }: Message,
  faults: Set<DeviceFault>,
): Promise<ControlResults[keyof ControlResults]> {
  switch (type) {
    case 'stat':
      return device.stat();
    case 'faults':
      return device.faults.map(stateOf);
    case 'add': {
      const added = await device.addFault(rule as string, { seed: seed as number });
      if (keep !== true) faults.add(added);
      return stateOf(added);
    }
    case 'remove': {
      const found = device.faults.find(({ id }) => id === fault);
      if (found === undefined) throw new VerbsError('ENOENT', `the device has no rule of faults ${String(fault)}`);
      await found.remove();
      return stateOf(found);
    }
    default:
      throw new TypeError(`a device has no request ${String(type)}`);
  }
}
