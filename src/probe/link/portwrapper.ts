/** The common part of ports that handle some packets of a port themselves and pass the others on. */
import type { Flow } from '../packet/packets.js';
import type { Arrival, PacketPort } from '../script/port.js';

/** A port around another one. */
export abstract class PortWrapper<Port extends PacketPort = PacketPort> implements PacketPort {
  constructor(
    /** The port of the queue pair. */
    readonly inner: Port,
  ) {}

  get flow(): Flow {
    return this.inner.flow;
  }

  get mtu(): number {
    return this.inner.mtu;
  }

  now(): number {
    return this.inner.now();
  }

  send(bytes: Uint8Array): number {
    return this.inner.send(bytes);
  }

  abstract receive(until: number): Promise<Arrival | undefined>;
}
