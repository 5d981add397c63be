/** The DREQ that a process prepares for its end: its private data tells it from that of a program that disconnects. */

/** Private data of the DREQ. */
export const EXIT_DATA: Uint8Array = new TextEncoder().encode('process ended');

/** Whether private data is that of the DREQ, with the padding of its message. */
export function isExitData(privateData: Uint8Array): boolean {
  return privateData.length >= EXIT_DATA.length && privateData.every((byte, i) => byte === (EXIT_DATA[i] ?? 0));
}
