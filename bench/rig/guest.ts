/**
 * The virtual machine of the interop tests as a rig: rxe and all other contenders run on the same kernel and the same
 * virtual CPUs. The ends of ours, Node and iperf3 are in two namespaces with a veth pair. rxe works in the initial
 * namespace only, so it has a veth pair of its own there. Routing rules send its packets over that pair, which would
 * otherwise be delivered locally. Another veth pair leads from a third rxe device to end b.
 */
import { Guest, guestUnavailable } from '../../test/interop/guest/guest.js';
import { findGuestImage } from '../../test/interop/guest/recipe.js';
import { GUEST_FOLDER, pack } from './guestimage.js';
import { busySeconds, type EndInfo, type EndName, type Program, type Rig } from './program.js';

const ENDS: Readonly<Record<EndName, EndInfo>> = {
  a: { interface: 'roce0', address: '10.99.0.1', mac: '02:00:00:00:00:0a' },
  b: { interface: 'roce0', address: '10.99.0.2', mac: '02:00:00:00:00:0b' },
};

export interface RxeEnd {
  readonly device: string;
  readonly interface: string;
  readonly address: string;
}

export const RXE: Readonly<Record<EndName, RxeEnd>> = {
  a: { device: 'rxe0', interface: 'rx0', address: '10.98.0.1' },
  b: { device: 'rxe1', interface: 'rx1', address: '10.98.0.2' },
};

/** The address at which a third rxe device reaches end b. */
export const RXE_TO_B = { device: 'rxe2', interface: 'rx2', far: 'roce1', address: '10.97.0.2' } as const;

const CPUS = { a: '0', b: '1' } as const;
const MEMORY = 1536;
/** A guest boots within one or two seconds under a working KVM. */
const KVM_BOOT_MS = 10_000;

const CABLE = `
  ip netns add a; ip netns add b
  ip -n a link add roce0 address ${ENDS.a.mac} type veth peer name roce0 address ${ENDS.b.mac} netns b
  for end in a b; do ip -n $end link set lo up; ip -n $end link set roce0 addrgenmode none; done
  ip -n a addr add ${ENDS.a.address}/24 dev roce0; ip -n b addr add ${ENDS.b.address}/24 dev roce0
  ip -n a link set roce0 up; ip -n b link set roce0 up`;

const RXE_CABLE = `
  ip link set lo up
  ip link add rx0 mtu 9000 type veth peer name rx1 mtu 9000
  ip addr add ${RXE.a.address}/32 dev rx0; ip addr add ${RXE.b.address}/32 dev rx1
  for name in all default rx0 rx1; do
    echo 0 > /proc/sys/net/ipv4/conf/$name/rp_filter; echo 1 > /proc/sys/net/ipv4/conf/$name/accept_local
  done
  for name in rx0 rx1; do ip link set $name addrgenmode none; ip link set $name up; ip rule add pref 10 iif $name lookup local; done
  ip route add ${RXE.b.address} dev rx0 src ${RXE.a.address} table 100
  ip route add ${RXE.a.address} dev rx1 src ${RXE.b.address} table 100
  ip rule add pref 20 lookup 100; ip rule add pref 30 lookup local; ip rule del pref 0
  busybox ping -c 1 -W 5 -I ${RXE.a.address} ${RXE.b.address} >/dev/null
  rdma link add rxe0 type rxe netdev rx0; rdma link add rxe1 type rxe netdev rx1
  ip link add rx2 mtu 9000 type veth peer name ${RXE_TO_B.far} mtu 9000 netns b
  ip link set rx2 addrgenmode none; ip -n b link set ${RXE_TO_B.far} addrgenmode none
  ip addr add 10.97.0.1/24 dev rx2; ip -n b addr add ${RXE_TO_B.address}/24 dev ${RXE_TO_B.far}
  ip link set rx2 up; ip -n b link set ${RXE_TO_B.far} up
  rdma link add ${RXE_TO_B.device} type rxe netdev rx2`;

/** Returns why no guest can run here; undefined when one can. */
export const guestReason = guestUnavailable;

export class GuestRig implements Rig {
  readonly a = ENDS.a;
  readonly b = ENDS.b;
  readonly programs = `${GUEST_FOLDER}/build/bench`;
  readonly node = `${GUEST_FOLDER}/bin/node`;
  readonly command = `${GUEST_FOLDER}/dist/cli/main.js`;
  readonly description: string;
  #files = 0;
  #mtu = 0;

  private constructor(
    readonly guest: Guest,
    accel: 'kvm' | 'tcg',
  ) {
    const how = accel === 'kvm' ? 'by KVM' : '**emulated in software: this host runs no KVM guests**';
    this.description = `a virtual machine with two CPUs, ${how}`;
  }

  static async open(): Promise<GuestRig> {
    const initrd = pack(findGuestImage()?.initrd ?? '');
    const { guest, accel } = await boot(initrd);
    const rig = new GuestRig(guest, accel);
    await guest.run(`set -e; ${CABLE}; ${RXE_CABLE}`, { timeout: 60_000 });
    return rig;
  }

  sharedFile(): string {
    return `/dev/shm/bench-${this.#files++}`;
  }

  async setMtu(mtu: number): Promise<void> {
    if (mtu === this.#mtu) return;
    const inside = (['a', 'b'] as const).map((end) => `ip -n ${end} link set ${ENDS[end].interface} mtu ${mtu}`);
    const rxe = (['a', 'b'] as const).map((end) => `ip link set ${RXE[end].interface} mtu ${mtu}`);
    const toB = [`ip link set ${RXE_TO_B.interface} mtu ${mtu}`, `ip -n b link set ${RXE_TO_B.far} mtu ${mtu}`];
    await this.guest.run([...inside, ...rxe, ...toB].join(' && '), { timeout: 30_000 });
    this.#mtu = mtu;
  }

  async setLoss(part: number): Promise<void> {
    const at = [
      ...(['a', 'b'] as const).map((end) => `tc -n ${end} qdisc replace dev ${ENDS[end].interface} root`),
      ...(['a', 'b'] as const).map((end) => `tc qdisc replace dev ${RXE[end].interface} root`),
    ];
    const queue = part === 0 ? 'noqueue' : `netem limit 100000 loss ${part * 100}%`;
    await this.guest.run(at.map((words) => `${words} ${queue}`).join(' && '), { timeout: 30_000 });
  }

  spawn(end: EndName, [program, ...args]: readonly string[]): Program {
    const file = program === 'iperf3' ? `${GUEST_FOLDER}/bin/iperf3` : (program as string);
    return this.#start(['ip', 'netns', 'exec', end, 'taskset', '-c', CPUS[end], file, ...args]);
  }

  /** Starts one of the guest's own programs in its initial namespace, where rxe works. */
  spawnRxe(end: EndName, command: readonly string[]): Program {
    return this.#start(['taskset', '-c', CPUS[end], ...command]);
  }

  async listening(end: EndName, port: number): Promise<void> {
    const state = `: [0-9A-F]+:${port.toString(16).toUpperCase()} 0+:0000 0A `;
    const wait = `until grep -qE '${state}' /proc/net/tcp /proc/net/tcp6; do sleep 0.05; done`;
    await this.guest.run(`ip netns exec ${end} sh -c "${wait}"`, { timeout: 30_000 });
  }

  async cpuSeconds(): Promise<number> {
    return busySeconds(await this.guest.run('head -n 1 /proc/stat'));
  }

  async close(): Promise<void> {
    await this.guest.stop();
  }

  #start(command: readonly string[]): Program {
    const running = this.guest.spawn(command);
    const exited = running.exited.then(({ status, stderr }) => {
      if (status !== 0 && status !== 137)
        throw new Error(stderr.trim() || `${command.join(' ')}: exit status ${status}`);
    });
    exited.catch(() => {});
    return {
      lines: () => running.lines(),
      write: (text) => running.write(text),
      exited,
      kill: () => void running.kill().catch(() => {}),
    };
  }
}

async function boot(initrd: string): Promise<{ guest: Guest; accel: 'kvm' | 'tcg' }> {
  const options = { initrd, mem: MEMORY, smp: 2 };
  try {
    return { guest: await Guest.start({ ...options, accel: 'kvm', bootTimeout: KVM_BOOT_MS }), accel: 'kvm' };
  } catch {
    return { guest: await Guest.start({ ...options, bootTimeout: 120_000 }), accel: 'tcg' };
  }
}
