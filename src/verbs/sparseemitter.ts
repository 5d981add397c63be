/** Event emitter for classes with many objects, of which few have listeners. */
import { EventEmitter } from 'node:events';

function Emitter(): void {}
Object.setPrototypeOf(Emitter, EventEmitter);
Object.setPrototypeOf(Emitter.prototype, EventEmitter.prototype);

/**
 * An `EventEmitter` that makes its table of listeners with the first listener. Node's constructor makes one for each
 * object, which takes more memory than a protection domain or an address handle has otherwise. It is not called: all
 * methods of `EventEmitter` accept an object without the table.
 */
export const SparseEmitter = Emitter as unknown as typeof EventEmitter;
