/**
 * wasm-roce/nvme: disks over RDMA, by NVMe over Fabrics.
 *
 * A target gives hosts, such as Linux with its driver nvme-rdma, files as disks. A controller is a host's connection to
 * a target, such as Linux's nvmet-rdma.
 *
 * @packageDocumentation
 */
import type { DiscoveryEntry } from './protocols/nvme/discovery.js';
import { NvmeController } from './protocols/nvme/host/controller.js';
import type { NvmeConnectOptions, NvmeDiscoverOptions } from './protocols/nvme/host/options.js';
import { NvmeTarget, type NvmeTargetOptions } from './protocols/nvme/target/target.js';

export type { DiscoveryEntry } from './protocols/nvme/discovery.js';
export { NvmeController } from './protocols/nvme/host/controller.js';
export { NvmeNamespace, type RangeOptions, type WriteOptions } from './protocols/nvme/host/namespace.js';
export type { NvmeConnectOptions, NvmeDiscoverOptions } from './protocols/nvme/host/options.js';
export { machineNqn } from './protocols/nvme/names.js';
export { NvmeError } from './protocols/nvme/status.js';
export type { NamespaceOptions, SubsystemOptions } from './protocols/nvme/target/options.js';
export { type FileStorageOptions, fileStorage, type Storage } from './protocols/nvme/target/storage.js';
export { NvmeTarget, type NvmeTargetOptions } from './protocols/nvme/target/target.js';
export { DISCOVERY_NQN, NVME_PORT } from './protocols/nvme/wire.js';

/**
 * Serves subsystems until it is closed.
 * @throws TypeError, RangeError for wrong options; VerbsError EADDRINUSE, EADDRNOTAVAIL, ENOMEM; as `openDevice`
 */
export function createTarget(options: NvmeTargetOptions): Promise<NvmeTarget> {
  return NvmeTarget.open(options);
}

/**
 * Connects to a subsystem.
 * @throws TypeError, RangeError for wrong options; NvmeError when the target refuses; CmError, VerbsError when it is
 * not reached; as `openDevice`
 */
export function connect(options: NvmeConnectOptions): Promise<NvmeController> {
  return NvmeController.connect(options);
}

/** Returns the subsystems that a target names in its discovery log. @throws as `connect` */
export function discover(options: NvmeDiscoverOptions): Promise<DiscoveryEntry[]> {
  return NvmeController.discover(options);
}
