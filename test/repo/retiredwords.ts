/** Names that do not come back: their meaning is lost, or another word of the field has it. */
export interface RetiredWord {
  readonly word: string;
  readonly instead: string;
  /** Folders in which it must not occur, from the project's folder. */
  readonly where: readonly string[];
}

const row = (word: string, instead: string, ...where: readonly string[]): RetiredWord => ({ word, instead, where });

export const RETIRED: readonly RetiredWord[] = [
  row('answerer', 'response', 'assembly'),
  row('examine', 'check', 'assembly'),
  row('isBlank', 'isEmptyResponse', 'assembly'),
  row('letGoOfAh', 'releaseAh', 'assembly'),
  row('spoil', 'failPost', 'assembly'),
  row('speak', 'sendAck', 'assembly'),
  row('told', 'advertised', 'assembly'),
  row('held', 'recvWqe', 'assembly'),
  row('Result', 'RespResource', 'assembly'),
  row('Run', 'GsoBurst', 'assembly'),
  row('continuesRun', 'the bit of a GSO burst', 'assembly', 'native', 'src/link'),
  row('lend', 'transfer, adopt', 'native', 'src/device', 'src/link'),
  row('loan', 'transfer, adopt', 'native', 'src/device', 'src/link'),
  row('borrow', 'transfer, adopt', 'native', 'src/device', 'src/link'),
  row('lender', 'SharedSocket', 'native'),
  row('borrowed', 'SharedSocket', 'native'),
  row('carrier', 'FrameSocket', 'native'),
  row('outbox', 'SendBatch', 'native'),
  row('Splitter', 'GroSplitter', 'native'),
  row('waiter', 'poller', 'native'),
  row('waker', 'eventfd', 'native'),
  row('NativeWaiter', 'the poller', 'src', 'test'),
  row('circumstances', 'FailureContext', 'src', 'test'),
  row('attend', 'makeInternal', 'src/verbs', 'src/cm'),
  row('Ah', 'AddressHandle', 'src'),
  row('udah', 'ah', 'src'),
  row('CmPort', 'MadAgent', 'src', 'test'),
  row('Ways', 'the AH cache', 'src'),
  row('OldAhs', 'the AH cache', 'src'),
  row('Neighbours', 'SharedAddress', 'src'),
  row('manager', 'context', 'src/cm'),
  row('pairing', 'qpstates', 'src/cm'),
  row('DialOptions', 'the options of connect', 'src', 'test'),
  row('Pump', 'CompletionPump', 'src/protocols/message', 'test/protocols/message'),
  row('Place', 'Slot', 'src/protocols/message'),
  row('Place', 'SourcePosition, FieldOffset', 'src/probe'),
  row('Talk', 'ResponderConversation', 'src/probe', 'test/probe'),
  row('CmTalk', 'CmConversation', 'src/probe', 'test/probe'),
  row('linkShare', 'icrcSpan', 'assembly'),
  row('retryCount', 'retryCnt', 'src/cm'),
  row('rnrRetryCount', 'rnrRetry', 'src/cm'),
  row('farewell', 'disconnect', 'src/protocols/message'),
  row('askForLife', 'probe', 'src'),
  row('meeting', 'communication', 'src/cli/perftest'),
  row('party', 'peer in the demo, worker in the benchmarks', 'src/cli/demo', 'bench', 'test/bench'),
  row('luggage', 'guestimage', 'bench'),
  row('sums', 'crc', 'bench', 'test/bench'),
  row('mortal', 'killed-process', 'test'),
  row('acquainted', 'measured-rtt', 'test'),
];
