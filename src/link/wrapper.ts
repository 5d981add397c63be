/** What every link around a link passes on; a wrapper overrides what it is for. */
import {
  type Frames,
  joinGroup,
  type Link,
  type LinkCounters,
  type LinkFeatures,
  type LinkInterface,
  type Resolved,
} from './link.js';

export abstract class LinkWrapper implements Link {
  constructor(protected readonly inner: Link) {}

  get kind(): string {
    return this.inner.kind;
  }

  get features(): LinkFeatures {
    return this.inner.features;
  }

  get interface(): LinkInterface {
    return this.inner.interface;
  }

  abstract attach(frames: Frames): void;
  abstract send(now: number): number;
  abstract receive(now: number): number;

  nextDeadline(): number {
    return this.inner.nextDeadline();
  }

  wait(deadline: number, keepAlive: boolean, onReadable: () => void): void {
    this.inner.wait(deadline, keepAlive, onReadable);
  }

  cancelWait(): void {
    this.inner.cancelWait();
  }

  counters(): LinkCounters {
    return this.inner.counters();
  }

  resolve(destination: string, source: string): Promise<Resolved> {
    return this.inner.resolve(destination, source);
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
