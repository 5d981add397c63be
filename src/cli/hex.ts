/** Numbers in hexadecimal, as the commands print and exchange them. */

/** Lower-case digits with leading zeros, without `0x`. */
export function hex(value: number | bigint, digits: number): string {
  return value.toString(16).padStart(digits, '0');
}

/** A queue pair number: `0x00001a`. */
export function qpnText(qpn: number): string {
  return `0x${hex(qpn, 6)}`;
}
