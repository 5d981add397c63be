/**
 * The vault outlives the broker: it has duplicates of all sockets, in messages that a Unix socket has sent to itself.
 * Every program holds that socket. While one of them lives, no member of a group is closed, so no index moves, and the
 * next broker finds all of them. A change is written behind the messages of the state before it, which then go: one
 * state is whole, whenever the broker is killed.
 */
import { parseMessage } from '../base/message.js';
import { errnoError } from '../link/errno.js';
import { closeFds } from '../link/fds.js';
import { native, type UnixMessage } from '../native.js';

/** A socket and its description, an object of JSON. */
export interface Entry<T> {
  readonly fd: number;
  readonly is: T;
}

/** A part of a state: descriptions of the file descriptors of its message. */
interface Part<T> {
  readonly generation: number;
  readonly part: number;
  readonly parts: number;
  readonly entries: readonly T[];
}

/** File descriptors of one message. The kernel takes 253. */
const PART_ENTRIES = 250;

/** See the head of this file. */
export class Vault<T> {
  #generation = 0;

  /** @param fd of the socket, which the vault owns */
  constructor(readonly fd: number) {}

  /** @throws VerbsError EIO if the kernel refuses the socket */
  static open<T>(): Vault<T> {
    const fd = native().unix.queue();
    if (fd < 0) throw errnoError(fd, 'the broker has no vault', {});
    return new Vault<T>(fd);
  }

  /**
   * Replaces the state.
   * @returns 0, or -errno if there is no room for it: the vault is empty then, so that it never has an old state
   */
  write(entries: readonly Entry<T>[]): number {
    this.#generation++;
    const generation = this.#generation;
    const parts = Math.max(1, Math.ceil(entries.length / PART_ENTRIES));
    let failed = 0;
    for (let part = 0; part < parts && failed === 0; part++) {
      const some = entries.slice(part * PART_ENTRIES, (part + 1) * PART_ENTRIES);
      const message: Part<T> = { generation, part, parts, entries: some.map(({ is }) => is) };
      failed = this.#send(
        message,
        some.map(({ fd }) => fd),
      );
    }
    this.#dropUntil((head) => failed === 0 && head.generation === generation);
    return failed;
  }

  /**
   * Returns the newest whole state, which stays in the vault until the next `write`. The caller owns its file
   * descriptors.
   */
  read(): Entry<T>[] {
    const whole = new Map<number, { part: Part<T>; fds: readonly number[] }[]>();
    const seen = new Set<string>();
    for (;;) {
      const head = this.#receive(true);
      if (head === undefined) break;
      const { message, fds } = head;
      const { generation, part } = message;
      const isSeen = seen.has(`${generation}/${part}`);
      // The message goes to the end before it leaves the head, so that it is never missing.
      if (isSeen || this.#send(message, fds) !== 0) {
        closeFds(fds);
        break;
      }
      seen.add(`${generation}/${part}`);
      closeFds(this.#receive(false)?.fds ?? []);
      whole.set(generation, [...(whole.get(generation) ?? []), { part: message, fds }]);
      this.#generation = Math.max(this.#generation, generation);
    }
    let newest: Entry<T>[] = [];
    for (const [, parts] of [...whole].sort(([a], [b]) => a - b)) {
      const [first] = parts;
      if (first === undefined || parts.length < first.part.parts) {
        for (const { fds } of parts) closeFds(fds);
        continue;
      }
      closeFds(newest.map(({ fd }) => fd));
      newest = parts.flatMap(({ part, fds }) => part.entries.map((is, i) => ({ is, fd: fds[i] as number })));
    }
    return newest;
  }

  close(): void {
    native().closeFd(this.fd);
  }

  #send(message: Part<T>, fds: readonly number[]): number {
    return native().unix.send(this.fd, Buffer.from(JSON.stringify(message)), fds);
  }

  /** Returns the oldest message; undefined if there is none. Other messages than those of a vault are removed. */
  #receive(peek: boolean): { message: Part<T>; fds: readonly number[] } | undefined {
    for (;;) {
      const received = native().unix.receive(this.fd, peek);
      if (typeof received === 'number') return undefined;
      const message = received && partOf<T>(received);
      if (message !== undefined) return { message, fds: received?.fds ?? [] };
      closeFds(received?.fds ?? []);
      if (!peek) continue;
      const removed = native().unix.receive(this.fd, false);
      if (typeof removed === 'object') closeFds(removed.fds);
    }
  }

  #dropUntil(isReached: (head: Part<T>) => boolean): void {
    for (let head = this.#receive(true); head !== undefined; head = this.#receive(true)) {
      closeFds(head.fds);
      if (isReached(head.message)) return;
      closeFds(this.#receive(false)?.fds ?? []);
    }
  }
}

/** Returns the part of a state that a message is; undefined if it is none. */
function partOf<T>({ bytes, fds }: UnixMessage): Part<T> | undefined {
  const { generation, part, parts, entries } = parseMessage(bytes) ?? {};
  if (![generation, part, parts].every(Number.isSafeInteger)) return undefined;
  if (!Array.isArray(entries) || entries.length !== fds.length) return undefined;
  return { generation, part, parts, entries } as Part<T>;
}
