/** Streams of this project: rsockets, and streams of connections, over one link in one mode. */
import { OurEnds } from './ends.js';
import type { OursOptions } from './ours.js';

export type StreamWay = 'rsocket' | 'rsocketOnread' | 'stream';

const NAMES: Readonly<Record<StreamWay, string>> = {
  rsocket: 'rsocket',
  rsocketOnread: 'rsocket, onread',
  stream: 'stream',
};
const FIRST_PORT = 7500;

export class OurStreams extends OurEnds {
  constructor(
    protected readonly worker: StreamWay,
    options: OursOptions,
  ) {
    super(NAMES[worker], FIRST_PORT, options, worker === 'rsocketOnread');
  }
}
