/** Status of commands (NVMe base specification, "Status Field"). */

/** Status code type in bits 10:8, status code in bits 7:0. */
export enum Status {
  SUCCESS = 0x000,
  INVALID_OPCODE = 0x001,
  INVALID_FIELD = 0x002,
  INTERNAL_ERROR = 0x006,
  INVALID_NAMESPACE = 0x00b,
  COMMAND_SEQUENCE_ERROR = 0x00c,
  DATA_SGL_LENGTH_INVALID = 0x00f,
  SGL_DESCRIPTOR_TYPE_INVALID = 0x011,
  SGL_OFFSET_INVALID = 0x016,
  KEEP_ALIVE_TIMEOUT_INVALID = 0x01a,
  NAMESPACE_WRITE_PROTECTED = 0x020,
  LBA_OUT_OF_RANGE = 0x080,
  CAPACITY_EXCEEDED = 0x081,
  ASYNC_EVENT_LIMIT_EXCEEDED = 0x105,
  INVALID_LOG_PAGE = 0x109,
  CONNECT_INCOMPATIBLE_FORMAT = 0x180,
  CONNECT_CONTROLLER_BUSY = 0x181,
  CONNECT_INVALID_PARAMETERS = 0x182,
  CONNECT_INVALID_HOST = 0x184,
  WRITE_FAULT = 0x280,
  UNRECOVERED_READ_ERROR = 0x281,
  COMPARE_FAILURE = 0x285,
}

/** Thrown for a command that fails. The response has its status and the bit DNR (do not retry). */
export class CommandError extends Error {
  constructor(
    readonly status: Status,
    /** Bytes 0 to 7 of the response: details of the status. */
    readonly result = 0n,
  ) {
    super(Status[status]);
  }
}

/** Waits for a call of a storage. @throws CommandError with `otherwise`, unless the error says more */
export async function ofStorage(call: Promise<void>, otherwise: Status): Promise<void> {
  await call.catch(({ code }: NodeJS.ErrnoException) => {
    throw new CommandError(code === 'ENOSPC' || code === 'EDQUOT' ? Status.CAPACITY_EXCEEDED : otherwise);
  });
}

/** Status codes for which Node.js has an error code that says the same. */
const CODES = new Map<number, string>([
  [Status.INVALID_OPCODE, 'EOPNOTSUPP'],
  [Status.INVALID_FIELD, 'EINVAL'],
  [Status.INVALID_NAMESPACE, 'ENODEV'],
  [Status.NAMESPACE_WRITE_PROTECTED, 'EROFS'],
  [Status.CAPACITY_EXCEEDED, 'ENOSPC'],
  [Status.CONNECT_INVALID_PARAMETERS, 'ENOENT'],
  [Status.CONNECT_INVALID_HOST, 'EACCES'],
]);

/** A command that the target has not carried out. */
export class NvmeError extends Error {
  /** Always `NvmeError`. */
  override readonly name = 'NvmeError';
  /** A code of Node.js: EIO, or what says more. */
  readonly code: string;
  /** Name of the status, such as `LBA_OUT_OF_RANGE`; a number if it has none here. */
  readonly status: string;

  /**
   * @param what name of the command
   * @param code status code type in bits 10:8, status code in bits 7:0
   */
  constructor(what: string, code: number) {
    const status = Status[code] ?? `0x${code.toString(16)}`;
    const error = CODES.get(code) ?? 'EIO';
    super(`${error}: the target answered ${what} with ${status}`);
    this.code = error;
    this.status = status;
  }
}
