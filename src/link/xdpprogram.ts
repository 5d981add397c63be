/**
 * The XDP program on an interface (native/roce_xdp.bpf.c) and its two maps: which queue has which AF_XDP socket, and which
 * addresses its card has. It hangs on a bpf_link, which the kernel takes down with the last thread that has it open.
 *
 * An interface runs one program. The second card on it finds ours there, opens the same bpf_link and the same maps, and puts
 * its own queues into them: in one process or in several.
 */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { VerbsError } from '../errors.js';
import { native } from '../native.js';
import { errnoName } from './errno.js';
import { u32 } from './netlink.js';
import { type AttachedProgram, attachedProgram } from './xdpfeatures.js';
import { type Handle, type Libbpf, libbpf } from './xdplibbpf.js';

export type XdpMode = 'native' | 'generic';

interface End {
  readonly name: string;
  readonly index: number;
}

/** What is open of a program on an interface. */
interface Parts {
  readonly mode: XdpMode;
  /** Another card had it there before. */
  readonly isShared: boolean;
  /** Why the driver does not run it, when the kernel does. */
  readonly refusal?: string;
  /** File descriptors of the maps. */
  readonly sockets: number;
  readonly addresses: number;
  /** Those, and what keeps the program on the interface. */
  readonly fds: Fds;
}

const OBJECT = fileURLToPath(new URL('../../build/native/roce_xdp.bpf.o', import.meta.url));
const NAMES = { program: 'roce_xdp', sockets: 'roce_sockets', addresses: 'roce_addresses' } as const;
/** XDP_FLAGS_DRV_MODE and XDP_FLAGS_SKB_MODE. */
const MODE_FLAGS = { native: 4, generic: 2 } as const;
const KEY_BYTES = 20;
/** A program may go away while it is being looked at. */
const ATTEMPTS = 3;

/** File descriptors of libbpf's that end together, with this thread at the latest. */
class Fds {
  readonly #open = new Set<number>();

  /** @param fd negative = none @returns the same */
  add(fd: number): number {
    if (fd >= 0) this.#open.add(native().keepFd(fd));
    return fd;
  }

  /** @param fd that somebody else closes @throws VerbsError EIO */
  copy(fd: number): number {
    const copy = native().copyFd(fd);
    if (copy < 0) throw new VerbsError('EIO', `no further file descriptor for the XDP program (${errnoName(copy)})`);
    return this.add(copy);
  }

  close(fd: number): void {
    if (this.#open.delete(fd)) native().closeFd(fd);
  }

  closeAll(): void {
    for (const fd of this.#open) this.close(fd);
  }
}

export class XdpProgram {
  readonly mode: XdpMode;
  readonly isShared: boolean;
  readonly refusal: string | undefined;
  readonly #bpf = libbpf();
  readonly #parts: Parts;
  /** Our entries in the map of addresses. */
  readonly #keys = new Map<string, Uint8Array>();
  #isClosed = false;

  /**
   * @param only in this mode; by default native, and generic where the driver refuses
   * @throws VerbsError EOPNOTSUPP without libbpf or without the program, EPERM, EBUSY when somebody else's program runs there
   */
  static attach(end: End, only?: XdpMode): XdpProgram {
    return new XdpProgram(open(libbpf(), end, only));
  }

  private constructor(parts: Parts) {
    this.#parts = parts;
    this.mode = parts.mode;
    this.isShared = parts.isShared;
    this.refusal = parts.refusal;
  }

  /** Gives a queue's frames to a socket, and forgets what a card before it has left behind. */
  setSocket(queue: number, fd: number): void {
    const { addresses, sockets } = this.#parts;
    const number = Buffer.from(u32(queue));
    for (const key of this.#bpf.keys(addresses, KEY_BYTES))
      if (number.equals(key.subarray(0, 4))) this.#bpf.deleteElement(addresses, key);
    this.#check(this.#bpf.updateElement(sockets, number, u32(fd)), `the XDP program does not take queue ${queue}`);
  }

  /** @param address 4 or 16 bytes @throws VerbsError EIO */
  addAddress(queue: number, address: Uint8Array): void {
    const key = keyOf(queue, address);
    const refused = this.#bpf.updateElement(this.#parts.addresses, key, Uint8Array.of(1));
    this.#check(refused, 'the XDP program takes no more addresses');
    this.#keys.set(key.join(), key);
  }

  removeAddress(queue: number, address: Uint8Array): void {
    const key = keyOf(queue, address);
    if (this.#keys.delete(key.join())) this.#bpf.deleteElement(this.#parts.addresses, key);
  }

  /** Takes our part away, and the program when no other card has it. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    for (const key of this.#keys.values()) this.#bpf.deleteElement(this.#parts.addresses, key);
    this.#parts.fds.closeAll();
  }

  #check(refused: number, what: string): void {
    if (refused < 0) throw new VerbsError('EIO', `${what} (${errnoName(refused)})`);
  }
}

/** `struct address_key`. */
function keyOf(queue: number, address: Uint8Array): Uint8Array {
  const key = new Uint8Array(KEY_BYTES);
  key.set(u32(queue));
  key.set(address, KEY_BYTES - address.length);
  if (address.length === 4) key.fill(0xff, KEY_BYTES - 6, KEY_BYTES - 4);
  return key;
}

function open(bpf: Libbpf, end: End, only: XdpMode | undefined): Parts {
  const object = load(bpf);
  const fds = new Fds();
  try {
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      const parts = attach(bpf, object, fds, end, only ? [only] : ['native', 'generic']) ?? join(bpf, object, fds, end);
      if (parts) return parts;
      fds.closeAll();
    }
    throw new VerbsError('EBUSY', `XDP programs come and go on ${end.name}: try again`);
  } catch (error) {
    fds.closeAll();
    throw error;
  } finally {
    // a thread that ends early closes its file descriptors, but nothing of libbpf's
    bpf.closeObject(object);
  }
}

/** Why there is no program to attach; undefined when there is. */
export function programMissing(): string | undefined {
  if (existsSync(OBJECT)) return undefined;
  return `the XDP program ${OBJECT} was not built: npm run build does it with the Debian packages clang and libbpf-dev`;
}

function load(bpf: Libbpf): Handle {
  const missing = programMissing();
  if (missing !== undefined) throw new VerbsError('EOPNOTSUPP', missing);
  const object = bpf.openObject(OBJECT);
  if (object === null) throw new VerbsError('EIO', `libbpf cannot read ${OBJECT}`);
  const refused = bpf.loadObject(object);
  if (refused === 0) return object;
  bpf.closeObject(object);
  throw refusal(refused, 'the kernel does not take the XDP program');
}

function refusal(refused: number, otherwise: string): VerbsError {
  const name = errnoName(refused);
  if (name === 'EPERM' || name === 'EACCES')
    return new VerbsError(
      'EPERM',
      'an XDP program needs the capabilities CAP_BPF and CAP_NET_ADMIN: run as root, or take the packet link, which needs ' +
        'CAP_NET_RAW only, or the udp link, which needs none',
    );
  return new VerbsError('EOPNOTSUPP', `${otherwise} (${name})`);
}

/** @returns undefined when there is a program already */
function attach(
  bpf: Libbpf,
  object: Handle,
  fds: Fds,
  { name, index }: End,
  modes: readonly XdpMode[],
): Parts | undefined {
  const program = bpf.programFd(bpf.findProgram(object, NAMES.program));
  let reason: string | undefined;
  let refused = 0;
  for (const mode of modes) {
    const link = fds.add(bpf.attachXdp(program, index, MODE_FLAGS[mode]));
    if (link >= 0)
      return {
        ...{ mode, isShared: false, ...(reason !== undefined && { refusal: reason }) },
        sockets: fds.copy(bpf.findMapFd(object, NAMES.sockets)),
        addresses: fds.copy(bpf.findMapFd(object, NAMES.addresses)),
        fds,
      };
    refused = link;
    reason = errnoName(link);
    // EEXIST: one in the other mode.
    if (reason === 'EBUSY' || reason === 'EEXIST') return undefined;
  }
  throw refusal(refused, `${name} takes no XDP program`);
}

/** Shares what another card has attached. @returns undefined when it has just gone @throws VerbsError EBUSY when it is not ours */
function join(bpf: Libbpf, object: Handle, fds: Fds, end: End): Parts | undefined {
  const there = attachedProgram(end.index);
  if (!there) return undefined;
  const program = fds.add(bpf.programById(there.id));
  if (program < 0 && errnoName(program) === 'ENOENT') return undefined;
  const link = linkOf(bpf, fds, there.id, end.index);
  if (program < 0) throw foreign(end, there, undefined, link >= 0);
  const { tag, name, mapIds } = bpf.programInfo(program);
  const own = bpf.programInfo(bpf.programFd(bpf.findProgram(object, NAMES.program)));
  if (tag !== own.tag || there.mode === 'offloaded') throw foreign(end, there, name, link >= 0);
  const maps = new Map(mapIds.map((id) => fds.add(bpf.mapById(id))).map((fd) => [bpf.mapName(fd), fd]));
  const [sockets, addresses] = [maps.get(NAMES.sockets), maps.get(NAMES.addresses)];
  if (link < 0 || sockets === undefined || addresses === undefined) return undefined;
  return { mode: there.mode, isShared: true, sockets, addresses, fds };
}

/** The bpf_link by which a program hangs on an interface. @returns a file descriptor, or a negative number */
function linkOf(bpf: Libbpf, fds: Fds, programId: number, ifindex: number): number {
  for (let id = bpf.nextLinkId(0); id !== undefined; id = bpf.nextLinkId(id)) {
    const fd = fds.add(bpf.linkById(id));
    if (fd < 0) continue;
    const info = bpf.linkInfo(fd);
    if (info?.programId === programId && info.ifindex === ifindex) return fd;
    fds.close(fd);
  }
  return -1;
}

function foreign({ name }: End, { id, mode }: AttachedProgram, program: string | undefined, isLinked: boolean) {
  const what = program === undefined ? `${id}` : `${id} ('${program}')`;
  const off = `or remove it by \`ip link set dev ${name} ${mode === 'generic' ? 'xdpgeneric' : 'xdp'} off\``;
  return new VerbsError(
    'EBUSY',
    `${name} has the XDP program ${what} in ${mode} mode: end the process that attached it${isLinked ? '' : `, ${off}`}; ` +
      'or take the packet link, which works beside it',
  );
}
