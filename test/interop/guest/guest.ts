/**
 * A small Linux with rdma_rxe in QEMU: the independent peer of the tests. It is emulated in software (no KVM needed)
 * and ends with the thread that started it, however that ends.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { accessSync, constants, existsSync } from 'node:fs';
import type { Duplex } from 'node:stream';
import { FRAME_HEADER, FrameType, frame, GuestCommand, type Result } from './command.js';
import { findGuestImage } from './recipe.js';

export interface GuestOptions {
  /** Name of an existing tap interface in this process's network namespace. Without it the guest has no network. */
  readonly tap?: string;
  /** MTU of eth0 in bytes; 1500 gives rxe a path MTU of 1024, 9000 gives 4096. */
  readonly mtu?: number;
  /** Addresses of eth0, as in `10.77.0.3/24`. rxe's GID 0 is link-local, the first IPv4 address 1, the first IPv6 2. */
  readonly addresses?: readonly string[];
  readonly mac?: string;
  /** Memory in MiB. */
  readonly mem?: number;
  /** CPUs. With one CPU, a polling program delays the guest's kernel by a tick at a time. */
  readonly smp?: number;
  /** Timeout of the boot in ms, until the first command is possible. */
  readonly bootTimeout?: number;
  /** An initramfs instead of the image's own, usually that one with another archive appended. */
  readonly initrd?: string;
  /** `kvm` needs a host with KVM, and may fail to boot even there. Default: `tcg`, emulation in software. */
  readonly accel?: 'tcg' | 'kvm';
}

export interface ExecOptions {
  /** Milliseconds after which the command is killed and exec throws. */
  readonly timeout?: number;
  /** The whole standard input. */
  readonly input?: string | Uint8Array;
}

/** Returns the first reason why a guest cannot start here, for the name of a skipped test; undefined when it can. */
export function guestUnavailable(): string | undefined {
  if (process.platform !== 'linux' || process.arch !== 'x64')
    return `needs Linux on x86-64, not ${process.platform} ${process.arch}`;
  // the missing image comes before missing permissions: root of a private user namespace lacks both
  if (!findGuestImage()) return 'needs the guest image: run npm run build as root';
  if (!existsSync('/usr/bin/qemu-system-x86_64')) return 'needs the package qemu-system-x86';
  if (process.getuid?.() !== 0) return 'needs root for a tap interface';
  try {
    accessSync('/dev/net/tun', constants.R_OK | constants.W_OK);
  } catch {
    return 'needs access to /dev/net/tun';
  }
  return undefined;
}

/** Kernel arguments that save seconds under emulation: no mitigations, no timer calibration, no wait for entropy. */
const KERNEL_ARGUMENTS =
  'console=ttyS0 quiet panic=-1 mitigations=off nokaslr tsc=reliable no_timer_check random.trust_cpu=on rcupdate.rcu_expedited=1';

/** The message of a kernel that crashes, and the lines after it, which tell the instruction. */
const CRASH = /.*(?:Oops: |Kernel panic).*(?:\r?\n.*){0,6}/;
/** Boot attempts when the guest's kernel crashes during its boot. */
const BOOT_ATTEMPTS = 3;
/** The index of the agent's port in QEMU's stdio. */
export const PORT_FD = 3;

/** Returns the words that start QEMU. */
function qemu(options: GuestOptions): string[] {
  const image = findGuestImage();
  if (!image) throw new Error('no guest image: run test/interop/guest/image.ts');
  const network = options.tap
    ? [
        '-netdev',
        `tap,id=net,ifname=${options.tap},script=no,downscript=no`,
        '-device',
        `virtio-net-pci,netdev=net,mac=${options.mac ?? '52:54:00:77:00:03'},romfile=`,
      ]
    : [];
  return [
    'qemu-system-x86_64',
    ...['-nodefaults', '-no-user-config', '-display', 'none', '-no-reboot'],
    ...['-machine', 'q35,hpet=off,smm=off'],
    ...(options.accel === 'kvm' ? ['-accel', 'kvm', '-cpu', 'host'] : ['-accel', 'tcg,thread=multi', '-cpu', 'max']),
    ...['-m', String(options.mem ?? 512), '-smp', String(options.smp ?? 2)],
    ...['-kernel', image.kernel, '-initrd', options.initrd ?? image.initrd, '-append', KERNEL_ARGUMENTS],
    ...['-serial', 'stdio', '-device', 'virtio-serial-pci'],
    ...['-chardev', `socket,id=agent,fd=${PORT_FD}`, '-device', 'virtserialport,chardev=agent,name=agent'],
    ...network,
  ];
}

export class Guest implements AsyncDisposable {
  /** Milliseconds from start to the first possible command. */
  bootTime = 0;
  /** QEMU, or another process whose child is the agent. */
  protected readonly machine: ChildProcess;
  readonly #port: Duplex;
  #console = '';
  #received: Buffer = Buffer.alloc(0);
  #commands = new Map<number, GuestCommand>();
  #nextChannel = 1;
  #onReady = () => {};
  #ended: string | undefined;
  readonly #exited: Promise<void>;

  /**
   * Boots a guest and sets up eth0 and, on it, rxe0.
   * @throws Error with the end of the console output when it does not boot
   */
  static async start(options: GuestOptions = {}): Promise<Guest> {
    for (let attempt = 1; ; attempt++) {
      const guest = new Guest(qemu(options));
      try {
        await guest.booted(options.bootTimeout ?? 60_000);
        if (options.tap) await guest.setUpNetwork(options);
        return guest;
      } catch (error) {
        await guest.stop();
        // Under emulation a kernel that patches its own code at boot sometimes crashes, because the other processor
        // executes it.
        if (!CRASH.test(guest.console) || attempt === BOOT_ATTEMPTS) throw error;
      }
    }
  }

  /** @param words a command whose file descriptor PORT_FD is the agent's port */
  protected constructor(words: readonly string[]) {
    this.machine = spawn('setpriv', ['--pdeathsig', 'KILL', '--', ...words], {
      stdio: ['ignore', 'pipe', 'pipe', 'pipe'],
    });
    // An extra 'pipe' of a child process is a socket pair, which QEMU accepts.
    this.#port = this.machine.stdio[PORT_FD] as Duplex;
    this.#port.on('data', (data: Buffer) => this.#take(data));
    this.#port.on('error', () => {});
    for (const stream of [this.machine.stdout, this.machine.stderr]) {
      stream?.on('data', (data: Buffer) => {
        this.#console = (this.#console + data).slice(-65536);
      });
    }
    this.#exited = new Promise((resolve) => {
      this.machine.on('error', (error) => this.#over(`QEMU could not be started: ${error.message}`, resolve));
      this.machine.on('close', (code, signal) => this.#over(`QEMU ended with ${signal ?? code}`, resolve));
    });
  }

  /** The last 64 KiB of output of kernel and agent on the console, and of QEMU on standard error. */
  get console(): string {
    return this.#console;
  }

  /** Starts a command. @param command arguments, or a string for the guest's shell */
  spawn(command: string | readonly string[]): GuestCommand {
    if (this.#ended) throw new Error(`guest: ${this.#ended}`);
    const channel = this.#nextChannel++;
    const argv = typeof command === 'string' ? ['sh', '-c', command] : command;
    const send = (type: FrameType, data: Uint8Array) => this.#port.write(frame(channel, type, data));
    const running = new GuestCommand(`guest: ${typeof command === 'string' ? command : command.join(' ')}`, send);
    this.#commands.set(channel, running);
    send(FrameType.RUN, Buffer.from(argv.map((argument) => `${argument}\0`).join('')));
    return running;
  }

  /**
   * Runs a command to its end, whatever its status.
   * @throws Error when `timeout` (10 s) passes first; the command is killed
   */
  exec(command: string | readonly string[], options: ExecOptions = {}): Promise<Result> {
    return awaitedLater(this.#exec(command, options));
  }

  /** Runs a command that must succeed. @returns its standard output @throws Error with all output when it fails */
  run(command: string | readonly string[], options: ExecOptions = {}): Promise<string> {
    return awaitedLater(this.#run(command, options));
  }

  async #exec(command: string | readonly string[], options: ExecOptions): Promise<Result> {
    const running = this.spawn(command);
    if (options.input !== undefined) running.write(options.input);
    running.end();
    const timeout = options.timeout ?? 10_000;
    let expired = false;
    const timer = setTimeout(() => {
      expired = true;
      void running.kill().catch(() => {});
    }, timeout);
    try {
      const result = await running.exited;
      if (expired) throw running.error(`not done within ${timeout} ms, killed`);
      return result;
    } finally {
      clearTimeout(timer);
    }
  }

  async #run(command: string | readonly string[], options: ExecOptions): Promise<string> {
    const result = await this.#exec(command, options);
    if (result.status === 0) return result.stdout;
    const title = typeof command === 'string' ? command : command.join(' ');
    throw new Error(`guest: ${title}: status ${result.status}\n${result.stdout}${result.stderr}`);
  }

  /**
   * Waits until a server in the guest listens. Most stock programs do not report it in time, because their output is
   * buffered.
   * @param kind `tcp`, or `rdma` for a listener of rdma_cm (rping and similar, perftest -R)
   */
  async listening(port: number, kind: 'tcp' | 'rdma' = 'tcp', timeout = 10_000): Promise<void> {
    const hex = port.toString(16).toUpperCase().padStart(4, '0');
    const test =
      kind === 'tcp'
        ? `grep -qE ': [0-9A-F]+:${hex} 0+:0000 0A ' /proc/net/tcp /proc/net/tcp6`
        : `rdma resource show cm_id | grep -qE 'state LISTEN .*:${port}( |$)'`;
    await this.run(`until ${test}; do sleep 0.05; done`, { timeout });
  }

  /** Whether the guest has ended, by `stop` or by itself. */
  get hasEnded(): boolean {
    return this.#ended !== undefined;
  }

  /** The commands that run now. */
  get commands(): ReadonlySet<GuestCommand> {
    return new Set(this.#commands.values());
  }

  /** Kills the commands that run, except for those of `spared`. */
  async killCommands(spared: ReadonlySet<GuestCommand>): Promise<void> {
    const killed = [...this.commands].filter((command) => !spared.has(command));
    await Promise.all(killed.map((command) => command.kill()));
  }

  /**
   * Makes the guest as it was after its boot: kills all commands, and sets up eth0 and rxe0 anew.
   * @param options `mtu` and `addresses` of eth0
   * @throws Error as `cleanUp`
   */
  async renew(options: Pick<GuestOptions, 'mtu' | 'addresses'>): Promise<void> {
    await this.killCommands(new Set());
    const steps = [
      'for device in $(ls /sys/class/infiniband); do rdma link delete $device || exit; done',
      'ip link set eth0 down',
      'for name in $(ls /sys/class/net); do case $name in lo|eth0) ;; *) ip link delete $name || exit ;; esac; done',
      'ip address flush dev eth0',
      '{ tc qdisc del dev eth0 root 2>/dev/null || true; }',
    ];
    await this.cleanUp(steps.join(' && '));
    await this.setUpNetwork(options);
  }

  /**
   * Runs a command that removes what a test has left. Its kernel may be stuck in what the test did to it; then nothing
   * can be removed any more, so the guest is stopped.
   * @throws Error with the kernel stacks of blocked tasks when the command fails or is late
   */
  async cleanUp(command: string, timeout = 10_000): Promise<void> {
    try {
      await this.#run(command, { timeout });
    } catch (error) {
      const stacks = await this.#run('dmesg -c >/dev/null; echo w >/proc/sysrq-trigger; dmesg', {}).catch(String);
      await this.stop();
      throw new Error(`${(error as Error).message}\n--- blocked tasks\n${stacks}`);
    }
  }

  /** Sets eth0 up and removes what delays or drops its frames. */
  async repairNetwork(): Promise<void> {
    await this.run('ip link set eth0 up; tc qdisc del dev eth0 root 2>/dev/null || true');
  }

  /** Stops the guest. Running commands are rejected. */
  async stop(): Promise<void> {
    this.machine.kill('SIGKILL');
    await this.#exited;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  protected async booted(timeout: number): Promise<void> {
    const started = performance.now();
    await new Promise<void>((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`guest: not up after ${timeout} ms\n${this.#console}`)), timeout);
      this.#onReady = () => {
        clearTimeout(timer);
        resolve();
      };
      void this.#exited.then(() => {
        clearTimeout(timer);
        reject(new Error(`guest: ${this.#ended}\n${this.#console}`));
      });
    });
    this.bootTime = performance.now() - started;
  }

  protected async setUpNetwork(options: GuestOptions): Promise<void> {
    const addresses = options.addresses ?? [];
    const steps = [
      'ip link set lo up',
      // Nobody else uses these addresses, so duplicate address detection is not needed.
      'echo 0 > /proc/sys/net/ipv6/conf/eth0/accept_dad',
      `ip link set eth0 mtu ${options.mtu ?? 1500}`,
      ...addresses.map((address) => `ip address add ${address} dev eth0`),
      // virtio_net announces a joined group to its device with a delay, until which the device drops frames of the
      // group.
      'ip link set eth0 allmulticast on',
      'ip link set eth0 up',
      'rdma link add rxe0 type rxe netdev eth0',
    ];
    await this.run(steps.join(' && '));
  }

  #take(data: Buffer): void {
    this.#received = this.#received.length > 0 ? Buffer.concat([this.#received, data]) : data;
    for (;;) {
      if (this.#received.length < FRAME_HEADER) return;
      const end = FRAME_HEADER + this.#received.readUInt32LE(8);
      if (this.#received.length < end) return;
      const channel = this.#received.readUInt32LE(0);
      const type: FrameType = this.#received.readUInt32LE(4);
      const body = this.#received.subarray(FRAME_HEADER, end);
      this.#received = this.#received.subarray(end);
      if (type === FrameType.READY) this.#onReady();
      else if (this.#commands.get(channel)?.take(type, body)) this.#commands.delete(channel);
    }
  }

  #over(how: string, done: () => void): void {
    const [crash] = CRASH.exec(this.#console) ?? [];
    const why = crash === undefined ? how : `${how}: ${crash.trim()}`;
    this.#ended ??= why;
    for (const command of this.#commands.values()) command.abandon(why);
    this.#commands.clear();
    done();
  }
}

/** A command may fail before its caller awaits it, for one because the guest ends: that fails the test, not the run. */
function awaitedLater<T>(result: Promise<T>): Promise<T> {
  result.catch(() => {});
  return result;
}
