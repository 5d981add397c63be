/** Names that the cards of an interface tell each other by: abstract Unix sockets, which end at the network namespace as interfaces do. */
import { native } from '../native.js';
import type { Names } from './link.js';

const EADDRINUSE = 98;

export function interfaceNames(interfaceName: string): Names {
  const full = (name: string) => `wasm-roce/${interfaceName}/${name}`;
  return {
    hold(name) {
      let fd = native().nameHold(full(name));
      // where the kernel gives no such socket nobody else has one either
      if (fd < 0) return fd === -EADDRINUSE ? undefined : () => {};
      return () => {
        native().closeFd(fd);
        // the number may be another's at the next call
        fd = -1;
      };
    },
    isHeld: (name) => native().nameIsHeld(full(name)),
  };
}
