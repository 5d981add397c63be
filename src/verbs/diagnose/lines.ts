/** Lines of text over a stream. */
import type { Socket } from 'node:net';

/** Most characters of a reply: those of a device with 10,000 queue pairs have 20 million. */
export const MAX_REPLY = 2 ** 27;

/**
 * Calls back for each line that a socket receives, without its end.
 * @param maxCharacters of a line; a socket that receives a longer one is destroyed
 */
export function onLines(socket: Socket, maxCharacters: number, onLine: (line: string) => void): void {
  let rest: string[] = [];
  let length = 0;
  socket.setEncoding('utf8').on('data', (text: string) => {
    // pieces of a long line are joined once
    const [end = '', ...others] = text.split('\n');
    rest.push(end);
    length += end.length;
    for (const begin of others) {
      if (socket.destroyed || length > maxCharacters) break;
      onLine(rest.join(''));
      rest = [begin];
      length = begin.length;
    }
    if (length > maxCharacters) socket.destroy();
  });
}
