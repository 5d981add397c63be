/**
 * Two devices in this process on one hub, each with a queue pair connected to the other's. In worker mode, in which
 * vitest.config.ts runs some files a second time, the devices use the kernel's loopback interface instead of the hub.
 */
import {
  type AccessName,
  type Cq,
  type Device,
  MemoryHub,
  type Mr,
  type OpenOptions,
  openDevice,
  type Pd,
  type Qp,
  type QpConnectOptions,
  type QpOptions,
} from '../../src/index.js';

export interface End {
  readonly device: Device;
  readonly pd: Pd;
  readonly cq: Cq;
  readonly qp: Qp;
  /** 64 KiB with all rights. */
  readonly mr: Mr;
}

export interface Pair extends AsyncDisposable {
  readonly a: End;
  readonly b: End;
}

export const ALL: readonly AccessName[] = ['localWrite', 'remoteWrite', 'remoteRead', 'remoteAtomic'];

export interface PairOptions {
  readonly open?: OpenOptions;
  readonly qp?: Partial<QpOptions>;
  readonly connect?: QpConnectOptions;
  /** The hub carries GSO bursts as super-packets. Default true. */
  readonly coalesce?: boolean;
}

/** Mode in which devices are opened here. */
export const mode = process.env.WASM_ROCE_MODE === 'worker' ? 'worker' : 'inline';
/** IP versions of the devices' addresses: a hub assigns both, the loopback interface has many IPv4 addresses only. */
export const families: readonly (4 | 6)[] = mode === 'worker' ? [4] : [4, 6];
let opened = 0;

/** Options of the udp link on the loopback interface, with addresses that no other process and no other device uses. */
export function loopback(count = 1): { readonly link: 'udp'; readonly addresses: readonly string[] } {
  const address = () => `127.${128 + (process.pid % 127)}.${(process.pid >>> 7) & 0xff}.${1 + (opened++ % 250)}`;
  return { link: 'udp', addresses: Array.from({ length: count }, address) };
}

/** Opens a device on a hub, with 32 MiB and repeatable keys. */
export async function openOn(hub: MemoryHub, options: OpenOptions = {}): Promise<Device> {
  const where = options.mode === 'worker' || mode === 'worker' ? loopback() : ({ link: 'memory', hub } as const);
  return openDevice({ mode, ...where, memoryBytes: 32 * 2 ** 20, seed: 1, ...options });
}

export async function endOn(device: Device, qp: Partial<QpOptions> = {}): Promise<End> {
  const pd = await device.allocPd();
  const cq = await device.createCq({ cqe: 256 });
  const mr = await pd.regMr(65536, { access: ALL });
  return { device, pd, cq, mr, qp: await pd.createQp({ sendCq: cq, ...qp }) };
}

export async function connectedPair({ open, qp, connect, coalesce = true }: PairOptions = {}): Promise<Pair> {
  const hub = new MemoryHub({ coalesce });
  const a = await endOn(await openOn(hub, open), qp);
  const b = await endOn(await openOn(hub, { ...open, seed: 2 }), qp);
  const options = { access: ALL, ...connect };
  await a.qp.connect(b.qp.endpoint(), options);
  await b.qp.connect(a.qp.endpoint(), options);
  return {
    a,
    b,
    async [Symbol.asyncDispose]() {
      await a.device.close({ force: true });
      await b.device.close({ force: true });
    },
  };
}

/** Returns bytes that differ from their neighbours and from those of another seed. */
export function pattern(length: number, seed = 1): Buffer {
  return Buffer.from(Uint8Array.from({ length }, (_, i) => (i * 31 + (i >>> 8) * 7 + seed * 101) & 0xff));
}
