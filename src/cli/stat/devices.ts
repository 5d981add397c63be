/** The devices of other processes: those that are published, and those of programs that use the broker. */
import { type PublishedDevice, publishedDevices, type RemoteDevice, remoteDevices } from '../../index.js';

/** Returns the devices that processes of this user publish, and those that this user may read through the broker. */
export async function devicesOfHost(): Promise<PublishedDevice[]> {
  const [published, shared] = await Promise.all([publishedDevices(), sharedDevices()]);
  const keyOf = ({ pid, slot, interface: name }: PublishedDevice) => `${pid} ${slot} ${name}`;
  const known = new Set(published.map(keyOf));
  return [...published, ...shared.filter((each) => !known.has(keyOf(each)))];
}

async function sharedDevices(): Promise<PublishedDevice[]> {
  // the broker of another user, or one of another version
  const devices = await remoteDevices().catch(() => []);
  const found = await Promise.all(devices.map(read));
  for (const device of devices) device.close();
  return found.filter((device) => device !== undefined);
}

/** @returns undefined if the program does not reply */
async function read(device: RemoteDevice): Promise<PublishedDevice | undefined> {
  try {
    const stat = await device.stat();
    return { name: stat.device, pid: device.pid, ...stat };
  } catch {
    return undefined;
  }
}
