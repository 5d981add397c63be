/**
 * Channels of node:diagnostics_channel, by which instrumentation observes devices, connections and losses of packets
 * without changing the program. Publishing costs nothing where nobody has subscribed. The messages are documented in
 * docs/diagnostics.md; their objects belong to the program, so subscribers only read them.
 */
import { type Channel, channel } from 'node:diagnostics_channel';

/** The channels. */
export const diagnostics = {
  deviceOpen: channel('wasm-roce:device.open'),
  deviceClose: channel('wasm-roce:device.close'),
  connectionOpen: channel('wasm-roce:connection.open'),
  connectionRefuse: channel('wasm-roce:connection.refuse'),
  connectionClose: channel('wasm-roce:connection.close'),
  qpRetransmit: channel('wasm-roce:qp.retransmit'),
  drop: channel('wasm-roce:drop'),
} as const satisfies Readonly<Record<string, Channel>>;

/** Publishes a message, if there are subscribers. @param messageOf makes it */
export function publishTo(to: Channel, messageOf: () => object): void {
  if (to.hasSubscribers) to.publish(messageOf());
}
