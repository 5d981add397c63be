/**
 * The base of links that wrap a link. It passes everything on; a wrapper overrides what it changes. A wrapper reads
 * every frame, so it offers neither GSO bursts nor super-packets, nor error sockets, whose frames pass it by. It reads
 * whole frames, so the card computes every ICRC itself.
 */
import type { VerbsError } from '../errors.js';
import type { Frames } from './frames.js';
import {
  type HostNames,
  joinGroup,
  type Link,
  type LinkCounters,
  type LinkFeatures,
  type LinkInterface,
  type Resolved,
  type SharedPort,
} from './link.js';

/** A link around another link. */
export abstract class LinkWrapper implements Link {
  constructor(protected readonly inner: Link) {}

  get kind(): string {
    return this.inner.kind;
  }

  get notes(): readonly string[] {
    return this.inner.notes ?? [];
  }

  get features(): LinkFeatures {
    const { gso: _, coalescedBytes: __, icrcOffload: ___, ...features } = this.inner.features;
    return features;
  }

  get interface(): LinkInterface {
    return this.inner.interface;
  }

  get captureError(): VerbsError | undefined {
    return this.inner.captureError;
  }

  get pushesFrames(): boolean {
    return this.inner.pushesFrames ?? false;
  }

  abstract attach(frames: Frames): void;
  abstract send(now: number): number;
  abstract receive(now: number): number;

  /** Attaches the inner link so that it delivers single, unchanged frames even where slots could hold super-packets. */
  protected attachInner(frames: Frames): void {
    const { coalescedBytes = Infinity } = this.inner.features;
    const slotBytes = Math.min(frames.slotBytes, coalescedBytes - 1);
    this.inner.attach({ ...frames, slotBytes, icrcOffload: false });
  }

  nextDeadline(): number {
    return this.inner.nextDeadline();
  }

  wait(deadline: number, keepAlive: boolean, onReadable: () => void): void {
    this.inner.wait(deadline, keepAlive, onReadable);
  }

  cancelWait(): void {
    this.inner.cancelWait();
  }

  onTransferNotice(): void {
    this.inner.onTransferNotice?.();
  }

  counters(): LinkCounters {
    return this.inner.counters();
  }

  resolve(destination: string, source: string): Promise<Resolved> {
    return this.inner.resolve(destination, source);
  }

  get names(): HostNames | undefined {
    return this.inner.names;
  }

  get sharedPort(): SharedPort | undefined {
    return this.inner.sharedPort;
  }

  get sourcePortTo(): Link['sourcePortTo'] {
    return this.inner.sourcePortTo && ((path, program) => this.inner.sourcePortTo?.(path, program) ?? 0);
  }

  watchInterface(onChange: () => void): void {
    this.inner.watchInterface?.(onChange);
  }

  get watchPaths(): Link['watchPaths'] {
    return this.inner.watchPaths && ((onChange) => this.inner.watchPaths?.(onChange));
  }

  joinGroup(group: string): void {
    joinGroup(this.inner, group);
  }

  leaveGroup(group: string): void {
    this.inner.leaveGroup?.(group);
  }

  keepLastFrame(frame: Uint8Array, source: string): (() => void) | undefined {
    return this.inner.keepLastFrame?.(frame, source);
  }

  close(): void {
    this.inner.close();
  }
}
