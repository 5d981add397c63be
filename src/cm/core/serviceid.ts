/** Service ids: rdma_cm encodes port space and port in them. */

/** Port spaces of rdma_cm (RDMA_PS_*): bits 16 to 31 of a service id. */
export const PortSpace = { IPOIB: 0x0002, TCP: 0x0106, UDP: 0x0111, IB: 0x013f } as const;

/** Name of a port space. */
export type PortSpaceName = keyof typeof PortSpace;

const SPACE_OF = new Map(Object.entries(PortSpace).map(([name, bits]) => [BigInt(bits), name as PortSpaceName]));

/** Returns the service id of a port. @param port 0..65535 */
export function serviceId(space: PortSpaceName, port: number): bigint {
  return (BigInt(PortSpace[space]) << 16n) | BigInt(port);
}

/** Returns port space and port of a service id, or undefined for a service id that is not of rdma_cm. */
export function parseServiceId(id: bigint): { readonly space: PortSpaceName; readonly port: number } | undefined {
  const space = SPACE_OF.get(id >> 16n);
  return space && { space, port: Number(id & 0xffffn) };
}
