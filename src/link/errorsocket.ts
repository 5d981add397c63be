/** A UDP socket of the host that learns of the ICMP errors that its frames meet. */

import { ipBytes, ipText, isLinkLocal } from '../base/address.js';
import type { IcmpErrorCode } from '../errors.js';
import { native } from '../native.js';
import { errnoName } from './errno.js';
import type { HostInterface } from './interfaces.js';
import type { ErrorSocket, IcmpError } from './link.js';

/** Other errors, as of the path MTU, end no request. */
const ICMP_ERRORS: readonly IcmpErrorCode[] = ['ECONNREFUSED', 'EHOSTUNREACH', 'ENETUNREACH', 'EACCES'];

/** As `Link.openErrorSocket`, for an address of an interface. */
export function openErrorSocket(
  iface: HostInterface,
  source: string,
  onError: (error: IcmpError) => void,
): ErrorSocket | undefined {
  const socket = new (native().ErrorSocket)();
  const address = ipBytes(source);
  if (socket.open(address, 0, isLinkLocal(address) ? iface.index : 0) !== 0) return undefined;
  const poller = new (native().Poller)(() => {
    for (let error = socket.read(); error !== undefined; error = socket.read()) {
      const name = errnoName(error.errno);
      const code = ICMP_ERRORS.find((known) => known === name);
      if (code !== undefined) onError({ code, destination: ipText(error.address) });
    }
    poller.start(-1, false);
  });
  const close = () => {
    poller.close();
    socket.close();
  };
  if (poller.open([socket.fd()]) !== 0) {
    close();
    return undefined;
  }
  poller.start(-1, false);
  return { port: socket.port(), send: (frame) => socket.send(frame) === 0, close };
}
