/**
 * What every link around a link passes on; a wrapper overrides what it is for. Frames pass one by one: a wrapper looks at
 * each, so neither runs nor super-packets are offered; and at all of it, so the card itself makes every ICRC.
 */
import {
  type Frames,
  joinGroup,
  type Link,
  type LinkCounters,
  type LinkFeatures,
  type LinkInterface,
  type Names,
  type Resolved,
} from './link.js';

export abstract class LinkWrapper implements Link {
  constructor(protected readonly inner: Link) {}

  get kind(): string {
    return this.inner.kind;
  }

  get notes(): readonly string[] {
    return this.inner.notes ?? [];
  }

  get features(): LinkFeatures {
    const { runs: _, coalescedBytes: __, icrcOffload: ___, ...features } = this.inner.features;
    return features;
  }

  get interface(): LinkInterface {
    return this.inner.interface;
  }

  get arrivesByItself(): boolean {
    return this.inner.arrivesByItself ?? false;
  }

  abstract attach(frames: Frames): void;
  abstract send(now: number): number;
  abstract receive(now: number): number;

  /** Attaches the inner link so that it delivers single frames as they came, however much room there is for more. */
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

  onLoanNews(): void {
    this.inner.onLoanNews?.();
  }

  counters(): LinkCounters {
    return this.inner.counters();
  }

  resolve(destination: string, source: string): Promise<Resolved> {
    return this.inner.resolve(destination, source);
  }

  get names(): Names | undefined {
    return this.inner.names;
  }

  watchInterface(onChange: () => void): void {
    this.inner.watchInterface?.(onChange);
  }

  joinGroup(group: string): void {
    joinGroup(this.inner, group);
  }

  leaveGroup(group: string): void {
    this.inner.leaveGroup?.(group);
  }

  close(): void {
    this.inner.close();
  }
}
