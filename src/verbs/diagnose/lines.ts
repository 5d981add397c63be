/** Lines of text over a stream. */
import type { Socket } from 'node:net';

/** Most characters of a reply: those of a device with 10,000 queue pairs have 20 million. */
export const MAX_REPLY = 2 ** 27;

/**
 * Calls back for each line that a socket receives, without its end.
 * @param maxCharacters of a line; a socket that receives a longer one is destroyed
 */
export function onLines(socket: Socket, maxCharacters: number, onLine: (line: string) => void): void {
  let rest = '';
  socket.setEncoding('utf8').on('data', (text: string) => {
    const lines = (rest + text).split('\n');
    rest = lines.pop() as string;
    if (rest.length > maxCharacters) socket.destroy();
    for (const line of lines) if (!socket.destroyed) onLine(line);
  });
}
