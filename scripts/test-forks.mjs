// Loaded into vitest before it starts, by --import. Each of its processes gets a network namespace of its own, so that
// the test files of two processes may use the same interfaces, addresses and ports.
import { fileURLToPath } from 'node:url';

process.env.WASM_ROCE_NODE = process.execPath;
// child_process.fork starts this program.
process.execPath = fileURLToPath(new URL('private-net-node.sh', import.meta.url));
