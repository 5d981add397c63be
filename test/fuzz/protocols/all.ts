/** The fuzz targets of the protocols above the verbs. They run in virtual time. */
import type { FuzzTarget } from '../fuzzer.js';
import { collective } from './collective.js';
import { messageStream, messages } from './messages.js';
import { nvmeHost, nvmeTarget } from './nvme.js';
import { protocolTarget } from './protocol.js';
import { rpcClient, rpcServer } from './rpc.js';
import { rsocketClient, rsocketServer } from './rsocket.js';
import { valkeyClient, valkeyServer } from './valkey.js';

export const PROTOCOL_TARGETS: readonly FuzzTarget[] = [
  ...[rsocketServer, rsocketClient, valkeyServer, valkeyClient, nvmeTarget, nvmeHost],
  ...[rpcServer, rpcClient, messages, messageStream, collective],
].map(protocolTarget);
