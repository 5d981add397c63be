/**
 * The XDP program of an interface (native/node/roce_xdp.bpf.c) and its two maps: the AF_XDP socket of each queue, and
 * the addresses of each queue's card. A bpf_link attaches the program; the kernel detaches it when the last file
 * descriptor of the bpf_link is closed.
 *
 * An interface runs one program. A second card, in this process or another one, finds our program there, opens the same
 * bpf_link and the same maps, and adds its own queues.
 */
import { existsSync } from 'node:fs';
import { VerbsError } from '../../errors.js';
import { type LibbpfHandle, type NativeLibbpf, native } from '../../native.js';
import { packageFile } from '../../packagefile.js';
import { errnoName } from '../errno.js';
import { u32 } from '../netlink.js';
import { type AttachedProgram, attachedProgram } from './features.js';
import { libbpf } from './libbpf.js';

/** Place of an XDP program: `native` = in the driver, `generic` = in the kernel. */
export type XdpMode = 'native' | 'generic';

interface Interface {
  readonly name: string;
  readonly index: number;
}

/** An attached program and what is open of it. */
interface OpenProgram {
  readonly mode: XdpMode;
  /** Whether another card attached it. */
  readonly isShared: boolean;
  /** The driver's errno, if it refused the program and the kernel runs it instead. */
  readonly refusal?: string;
  /** File descriptor of the map of sockets. */
  readonly sockets: number;
  /** File descriptor of the map of addresses. */
  readonly addresses: number;
  /** All file descriptors: those of the maps, and the bpf_link that keeps the program attached. */
  readonly fds: OwnedFds;
}

const OBJECT = packageFile('build/native/roce_xdp.bpf.o');
const NAMES = { program: 'roce_xdp', sockets: 'roce_sockets', addresses: 'roce_addresses' } as const;
/** XDP_FLAGS_DRV_MODE and XDP_FLAGS_SKB_MODE. */
const MODE_FLAGS = { native: 4, generic: 2 } as const;
const KEY_BYTES = 20;
/** Number of attempts: another process may detach a program between two steps. */
const ATTEMPTS = 3;

/** File descriptors of this thread (fds.h) that are closed together. */
class OwnedFds {
  readonly #open = new Set<number>();

  /** Takes a file descriptor over. @param fd a negative number is ignored @returns `fd` */
  add(fd: number): number {
    if (fd >= 0) this.#open.add(fd);
    return fd;
  }

  /** Adds a duplicate of a file descriptor. @param fd its owner closes it @throws VerbsError EIO */
  copy(fd: number): number {
    const copy = native().dupFd(fd);
    if (copy < 0) throw new VerbsError('EIO', `the process cannot open another file descriptor (${errnoName(copy)})`);
    return this.add(copy);
  }

  close(fd: number): void {
    if (this.#open.delete(fd)) native().closeFd(fd);
  }

  closeAll(): void {
    for (const fd of this.#open) this.close(fd);
  }
}

/** The XDP program of an interface, as one card uses it. */
export class XdpProgram {
  readonly mode: XdpMode;
  readonly isShared: boolean;
  readonly refusal: string | undefined;
  readonly #bpf = libbpf();
  readonly #program: OpenProgram;
  /** This card's entries in the map of addresses. */
  readonly #keys = new Map<string, Uint8Array>();
  #isClosed = false;

  /**
   * Attaches the program, or shares the one that another card has attached.
   * @param only the only mode to try. Default: native, then generic
   * @throws VerbsError EOPNOTSUPP without libbpf or the compiled program; EPERM; EBUSY if another program is attached
   */
  static attach(iface: Interface, only?: XdpMode): XdpProgram {
    return new XdpProgram(openProgram(libbpf(), iface, only));
  }

  private constructor(program: OpenProgram) {
    this.#program = program;
    this.mode = program.mode;
    this.isShared = program.isShared;
    this.refusal = program.refusal;
  }

  /**
   * Redirects a queue's packets to a socket. Removes addresses that an earlier card of the queue has left in the map.
   */
  setSocket(queue: number, fd: number): void {
    const { addresses, sockets } = this.#program;
    const number = Buffer.from(u32(queue));
    for (const key of this.#bpf.keys(addresses, KEY_BYTES))
      if (number.equals(key.subarray(0, 4))) this.#bpf.deleteElement(addresses, key);
    this.#check(this.#bpf.updateElement(sockets, number, u32(fd)), `the XDP program cannot serve queue ${queue}`);
  }

  /**
   * Redirects packets to an address.
   * @param address 4 or 16 bytes
   * @param mac destination MAC address of its frames; those to another one stay with the kernel, which drops them
   * @param slot of the card, if it shares the address with other programs, whose packets stay with the kernel; else 0
   * @throws VerbsError EIO
   */
  addAddress(queue: number, address: Uint8Array, mac: Uint8Array, slot: number): void {
    const key = keyOf(queue, address);
    const rule = Uint8Array.of(...mac, slot, 0);
    const result = this.#bpf.updateElement(this.#program.addresses, key, rule);
    this.#check(result, 'the XDP program has no room for another address');
    this.#keys.set(key.join(), key);
  }

  /** Leaves packets to an address to the kernel. Does nothing if it was not added. */
  removeAddress(queue: number, address: Uint8Array): void {
    const key = keyOf(queue, address);
    if (this.#keys.delete(key.join())) this.#bpf.deleteElement(this.#program.addresses, key);
  }

  /** Removes this card's entries. Detaches the program if no other card uses it. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    for (const key of this.#keys.values()) this.#bpf.deleteElement(this.#program.addresses, key);
    this.#program.fds.closeAll();
  }

  #check(result: number, what: string): void {
    if (result < 0) throw new VerbsError('EIO', `${what} (${errnoName(result)})`);
  }
}

/** Returns a `struct address_key` (native/node/roce_xdp.bpf.c). */
function keyOf(queue: number, address: Uint8Array): Uint8Array {
  const key = new Uint8Array(KEY_BYTES);
  key.set(u32(queue));
  key.set(address, KEY_BYTES - address.length);
  if (address.length === 4) key.fill(0xff, KEY_BYTES - 6, KEY_BYTES - 4);
  return key;
}

function openProgram(bpf: NativeLibbpf, iface: Interface, only: XdpMode | undefined): OpenProgram {
  const object = loadObject(bpf);
  const fds = new OwnedFds();
  try {
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      const program =
        attachProgram(bpf, object, fds, iface, only ? [only] : ['native', 'generic']) ??
        shareProgram(bpf, object, fds, iface);
      if (program) return program;
      fds.closeAll();
    }
    throw new VerbsError('EBUSY', `XDP programs on ${iface.name} change too fast: try again`);
  } catch (error) {
    fds.closeAll();
    throw error;
  } finally {
    // The end of the thread would close its file descriptors, but not libbpf's object.
    bpf.closeObject(object);
  }
}

/** Returns why there is no compiled program to attach; undefined if there is one. */
export function programMissing(): string | undefined {
  if (existsSync(OBJECT)) return undefined;
  return `the XDP program ${OBJECT} is not built: run npm run build, with the Debian packages clang and libbpf-dev installed`;
}

function loadObject(bpf: NativeLibbpf): LibbpfHandle {
  const missing = programMissing();
  if (missing !== undefined) throw new VerbsError('EOPNOTSUPP', missing);
  const object = bpf.openObject(OBJECT);
  if (object === null) throw new VerbsError('EIO', `libbpf cannot read ${OBJECT}`);
  const result = bpf.loadObject(object);
  if (result === 0) return object;
  bpf.closeObject(object);
  throw attachError(result, 'the kernel refuses the XDP program');
}

function attachError(result: number, otherwise: string): VerbsError {
  const name = errnoName(result);
  if (name === 'EPERM' || name === 'EACCES')
    return new VerbsError(
      'EPERM',
      'an XDP program needs the capabilities CAP_BPF and CAP_NET_ADMIN: run as root, or use the packet link, which needs ' +
        'CAP_NET_RAW only, or the udp link, which needs none',
    );
  return new VerbsError('EOPNOTSUPP', `${otherwise} (${name})`);
}

/** Attaches the program. @returns undefined if the interface has a program already */
function attachProgram(
  bpf: NativeLibbpf,
  object: LibbpfHandle,
  fds: OwnedFds,
  { name, index }: Interface,
  modes: readonly XdpMode[],
): OpenProgram | undefined {
  const program = bpf.programFd(bpf.findProgram(object, NAMES.program));
  let reason: string | undefined;
  let result = 0;
  for (const mode of modes) {
    const link = fds.add(bpf.attachXdp(program, index, MODE_FLAGS[mode]));
    if (link >= 0)
      return {
        ...{ mode, isShared: false, ...(reason !== undefined && { refusal: reason }) },
        sockets: fds.copy(bpf.findMapFd(object, NAMES.sockets)),
        addresses: fds.copy(bpf.findMapFd(object, NAMES.addresses)),
        fds,
      };
    result = link;
    reason = errnoName(link);
    // EEXIST: a program in the other mode.
    if (reason === 'EBUSY' || reason === 'EEXIST') return undefined;
  }
  throw attachError(result, `${name} refuses XDP programs`);
}

/**
 * Opens the program that another card has attached.
 * @returns undefined if it is gone
 * @throws VerbsError EBUSY if it is not ours
 */
function shareProgram(
  bpf: NativeLibbpf,
  object: LibbpfHandle,
  fds: OwnedFds,
  iface: Interface,
): OpenProgram | undefined {
  const attached = attachedProgram(iface.index);
  if (!attached) return undefined;
  const program = fds.add(bpf.programById(attached.id));
  if (program < 0 && errnoName(program) === 'ENOENT') return undefined;
  const link = linkOf(bpf, fds, attached.id, iface.index);
  if (program < 0) throw foreignProgramError(iface, attached, undefined, link >= 0);
  const { tag, name, mapIds } = bpf.programInfo(program);
  const own = bpf.programInfo(bpf.programFd(bpf.findProgram(object, NAMES.program)));
  if (tag !== own.tag || attached.mode === 'offloaded') throw foreignProgramError(iface, attached, name, link >= 0);
  const maps = new Map(mapIds.map((id) => fds.add(bpf.mapById(id))).map((fd) => [bpf.mapName(fd), fd]));
  const [sockets, addresses] = [maps.get(NAMES.sockets), maps.get(NAMES.addresses)];
  if (link < 0 || sockets === undefined || addresses === undefined) return undefined;
  return { mode: attached.mode, isShared: true, sockets, addresses, fds };
}

/** Returns a file descriptor of the bpf_link that attaches a program to an interface, or a negative number. */
function linkOf(bpf: NativeLibbpf, fds: OwnedFds, programId: number, ifindex: number): number {
  for (let id = bpf.nextLinkId(0); id !== undefined; id = bpf.nextLinkId(id)) {
    const fd = fds.add(bpf.linkById(id));
    if (fd < 0) continue;
    const info = bpf.linkInfo(fd);
    if (info?.programId === programId && info.ifindex === ifindex) return fd;
    fds.close(fd);
  }
  return -1;
}

function foreignProgramError(
  { name }: Interface,
  { id, mode }: AttachedProgram,
  program: string | undefined,
  isLinked: boolean,
) {
  const what = program === undefined ? `${id}` : `${id} ('${program}')`;
  const off = `or remove it by \`ip link set dev ${name} ${mode === 'generic' ? 'xdpgeneric' : 'xdp'} off\``;
  return new VerbsError(
    'EBUSY',
    `${name} has the XDP program ${what} in ${mode} mode: end the process that attached it${isLinked ? '' : `, ${off}`}; ` +
      'or use the packet link, which works beside it',
  );
}
