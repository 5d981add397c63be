import type { Random } from '../kit/random.js';
import type { Completion, SendRequest } from '../kit/rig.js';
import { apply, operands } from './atomics.js';
import type { Posted, Range, Receive, StreamOptions } from './model.js';
import { isAtomic, isLocal, isWrite, type Op, takesReceive, WC_OPCODES } from './op.js';
import { type Side, SOURCE, WORDS, WRITTEN, type Zones } from './side.js';

const INVALIDATE = 1 << 24;
/** wrIds of receives start here. */
export const RECEIVES = 1 << 20;

const overlap = (a: Range, b: Range): boolean => a.offset < b.offset + b.length && b.offset < a.offset + a.length;

export class Stream {
  /** Status with which it ended. */
  ended: string | undefined;
  receiveEnded: string | undefined;
  completed = 0;
  received = 0;
  readonly #o: StreamOptions;
  readonly #random: Random;
  readonly #zones: Zones;
  readonly #posted: Posted[] = [];
  readonly #receives: Receive[] = [];
  readonly #receivable: readonly Op[];
  /** READs since the last fence of ranges that are written. */
  #openReads: Range[] = [];
  /** Requests that will invalidate a key of the peer, by op. */
  readonly #closing = new Map<number, Posted>();
  /** Run once nothing is in flight any more: for ranges that the rules leave undefined. */
  readonly #open: (() => void)[] = [];
  /** Nothing more can be posted before the next completion. */
  #isFull = false;
  #nextOp = 0;
  #nextReceive = 0;
  #lateUntil = 0;

  constructor(options: StreamOptions) {
    this.#o = options;
    this.#random = options.random;
    this.#zones = options.to.zones[options.index] as Zones;
    this.#receivable = options.ops.filter((op) => takesReceive(op.kind));
  }

  get from(): Side {
    return this.#o.from;
  }
  get to(): Side {
    return this.#o.to;
  }
  /** Everything is posted, and all posted requests are done. */
  get isDone(): boolean {
    return this.#nextOp === this.#o.ops.length && this.#posted.length === 0;
  }

  get #mayFail(): boolean {
    return this.#o.violation !== undefined || this.#o.mayEndWith.length !== 0;
  }

  fail(what: string, about: unknown = ''): never {
    throw new Error(`stream ${this.#o.index} ${what} ${about === '' ? '' : JSON.stringify(about)}`);
  }

  /** Posts as many requests as possible now; true when there were some, or will be soon. */
  pump(): boolean {
    let moved = this.#postReceives();
    for (;;) {
      // an application that has seen the end posts a few more, to see them flushed
      const end = this.ended === undefined ? this.#o.ops.length : Math.min(this.#o.ops.length, this.completed + 2);
      if (this.#nextOp >= end) return moved;
      if (this.#isFull) return moved;
      if (this.#random.chance(0.2)) return true;
      if (!this.#post(this.#o.ops[this.#nextOp] as Op)) {
        this.#isFull = this.#posted.some(({ op }) => op.isSignaled);
        return moved;
      }
      this.#nextOp++;
      moved = true;
    }
  }

  #postReceives(): boolean {
    const { net, late, lateBy, toQp, to } = this.#o;
    let moved = false;
    while (
      this.#nextReceive < this.#receivable.length &&
      net.now >= this.#lateUntil &&
      this.receiveEnded === undefined
    ) {
      const op = this.#receivable[this.#nextReceive] as Op;
      const isSend = op.kind !== 'RDMA_WRITE_WITH_IMM';
      const bytes = isSend
        ? op.length + (this.#random.chance(0.5) ? this.#random.below(100) : 0)
        : this.#random.below(50);
      const place = this.#zones.received.take(bytes);
      if (place === undefined) return moved;
      let pieces = to.pieces(this.#random, place.offset, bytes, 4);
      const { violation } = this.#o;
      if (violation?.index === op.index && violation.receive) pieces = violation.receive(pieces, this);
      const errno = toQp.recv(RECEIVES + op.index, pieces);
      if (errno !== 'OK') {
        if (errno !== 'ENOMEM') this.fail(`recv ${errno}`);
        this.#zones.received.undo(place);
        return moved;
      }
      this.#receives.push({ op, pieces, offset: place.offset, bytes, mark: place.mark });
      this.#nextReceive++;
      moved = true;
      if (this.#random.chance(late)) {
        this.#lateUntil = net.now + 1 + this.#random.below(lateBy);
        net.wake(this.#lateUntil);
      }
    }
    return moved;
  }

  /** False when there is no room now. */
  #post(op: Op): boolean {
    const { from, fromQp, violation, own, theirs } = this.#o;
    let fence = op.fence;
    let posted: Posted = { op };
    let request: SendRequest = {
      wrId: op.index,
      opcode: op.kind,
      signaled: op.isSignaled,
      solicited: op.isSolicited,
      imm: op.imm,
    };
    const revert: (() => void)[] = [];
    if (takesReceive(op.kind) || isWrite(op.kind)) {
      request = op.isInline
        ? {
            ...request,
            inline: from.arena.bytes.subarray(op.source, op.source + op.length),
          }
        : { ...request, pieces: from.pieces(this.#random, op.source, op.length, 4) };
    } else if (!isLocal(op.kind) && op.kind !== 'FLUSH') {
      const mine = (from.zones[this.#o.index] as Zones).landing;
      const place = mine.take(op.length);
      if (place === undefined) return false;
      const pieces = from.pieces(this.#random, place.offset, op.length, 4);
      revert.push(() => mine.undo(place));
      posted = { ...posted, landing: { pieces, ...place } };
      request = { ...request, pieces };
    }
    if (isWrite(op.kind)) {
      const at = this.#random.below(WRITTEN - op.length + 1);
      const range = {
        offset: this.#zones.written + (op.kind === 'ATOMIC_WRITE' ? at & ~7 : at),
        length: op.length,
      };
      // the request must not change what an earlier READ may still be reading
      if (this.#openReads.some((read) => overlap(read, range))) fence = true;
      [posted, request] = this.#aim(posted, request, range);
      if (op.length === 0) request = { ...request, remote: { va: 1n, rkey: 7 } };
    } else if (op.kind === 'RDMA_READ') {
      const offset = this.#random.chance(0.5)
        ? this.#random.below(SOURCE - op.length + 1)
        : this.#zones.written + this.#random.below(WRITTEN - op.length + 1);
      [posted, request] = this.#aim(posted, request, { offset, length: op.length });
    } else if (op.kind === 'FLUSH') {
      const [selectivity, placement] = [op.imm & 1, 1];
      const remote = this.to.remote(selectivity ? 0 : this.#random.below(SOURCE - op.length + 1));
      request = { ...request, remote, flush: { length: op.length, what: placement | (selectivity << 4) } };
    } else if (isAtomic(op.kind)) {
      [posted, request] = this.#drawAtomic(posted, request);
    } else if (op.kind === 'BIND_MW') {
      const { window, bind } = own.bind(this.#random);
      revert.push(() => own.unbind(window));
      posted = { ...posted, window };
      request = { ...request, bind };
    } else if (op.kind === 'SEND_WITH_INV' || op.kind === 'LOCAL_INV') {
      const isOwn = op.kind === 'LOCAL_INV';
      const at = isOwn ? from : this.to;
      const window =
        violation?.index === op.index ? undefined : isOwn ? own.takeReturned() : theirs.takeOpen(this.#random);
      const region = window ? undefined : at.rig.regionAt(at.arena.ptr, 64, 15 | INVALIDATE);
      revert.push(() => {
        if (region) at.rig.x.mrDereg(region.mr);
        else if (window) isOwn ? own.keep(window) : theirs.reopen(window);
      });
      // a READ through the window may still be in progress when its key is invalidated
      if (window && window.uses > 0) fence = true;
      posted = { ...posted, region, window };
      request = { ...request, imm: (window ?? region)?.rkey ?? 0 };
    }
    request = { ...request, fence };
    if (violation?.index === op.index && violation.send) request = violation.send(request, this);
    const errno = fromQp.send(request);
    if (errno !== 'OK') {
      if (errno !== 'ENOMEM') this.fail(`send ${op.kind} ${errno}`);
      for (const undo of revert) undo();
      return false;
    }
    this.#remember(posted, fence);
    return true;
  }

  /** The place of a request at the peer, by the arena's key or through a window. */
  #aim(posted: Posted, request: SendRequest, remote: Range): [Posted, SendRequest] {
    const { theirs } = this.#o;
    const window = theirs.through(this.#random, remote);
    const at = window ? theirs.remote(window, remote.offset) : this.to.remote(remote.offset);
    return [
      { ...posted, remote, window },
      { ...request, remote: at },
    ];
  }

  /** The request is posted: puts its effects into the model. */
  #remember(posted: Posted, fence: boolean): void {
    const { op, remote } = posted;
    if (fence) this.#openReads = [];
    let { expected } = posted;
    if (this.#o.violation?.index !== op.index) {
      if (isWrite(op.kind) && remote) this.#payload(op).copy(this.to.mirror, remote.offset);
      if (op.kind === 'RDMA_READ' && remote) {
        expected = Buffer.from(this.to.mirror.subarray(remote.offset, remote.offset + remote.length));
        this.#openReads.push(remote);
      }
      if (isAtomic(op.kind) && remote) expected = apply(op, this.to, remote.offset);
    }
    if (op.kind === 'SEND_WITH_INV') this.#closing.set(op.index, posted);
    if (remote && posted.window) this.#o.theirs.use(posted.window);
    this.#o.theirs.handBack(this.#random);
    this.#posted.push({ ...posted, expected });
  }

  #drawAtomic(posted: Posted, request: SendRequest): [Posted, SendRequest] {
    const { op } = posted;
    const isShared = op.kind === 'ATOMIC_FETCH_AND_ADD' && op.imm % 4 === 0;
    const offset = isShared ? this.to.shared : this.#zones.words + 8 * (op.imm % (WORDS - 1));
    // the arena's virtual address is a multiple of 4096, and the offsets are multiples of 8
    return this.#aim(posted, { ...request, ...operands(op, this.to, offset) }, { offset, length: 8 });
  }

  #payload(op: Op): Buffer {
    return this.from.mirror.subarray(op.source, op.source + op.length);
  }

  /** A completion of the sending queue pair's own requests. */
  onSend(wc: Completion): void {
    this.#isFull = false;
    for (;;) {
      const posted = this.#posted.shift();
      if (posted === undefined) this.fail('a completion too many', wc);
      const { op } = posted;
      if (op.index !== wc.wrId) {
        // unsignaled requests complete silently; but after a failure each has a completion
        if (op.isSignaled || this.ended !== undefined) this.fail(`completion of ${op.index} ${op.kind} is missing`, wc);
        this.#finish(posted);
        continue;
      }
      if (wc.opcode !== WC_OPCODES[op.kind]) this.fail(`wrong opcode for ${op.kind}`, wc);
      if (wc.status !== 'SUCCESS') {
        this.#endAt(posted, wc);
        return;
      }
      if (this.ended !== undefined) this.fail('success after a failure', wc);
      if (!op.isSignaled) this.fail('an unsignaled request completed', wc);
      if (this.#o.violation?.index === op.index && this.#o.violation.status !== 'SUCCESS')
        this.fail('a crime paid', wc);
      if (op.kind !== 'BIND_MW' && wc.byteLen !== op.length) this.fail(`byteLen is not ${op.length}`, wc);
      this.#finish(posted);
      return;
    }
  }

  #endAt(posted: Posted, wc: Completion): void {
    const { violation, mayEndWith } = this.#o;
    if (this.ended === undefined) {
      const isPoison = violation?.index === posted.op.index && wc.status === violation.status;
      const isAfter = violation?.after === wc.status && posted.op.index > violation.index;
      if (!isPoison && !isAfter && !mayEndWith.includes(wc.status))
        this.fail(`${posted.op.kind} must not end like this`, wc);
      this.ended = wc.status;
    } else if (wc.status !== 'WR_FLUSH_ERR') {
      this.fail('a second failure', wc);
    }
    this.completed++;
    this.#giveUp(posted);
  }

  /** The rules leave the content of its ranges undefined. */
  #giveUp({ op, remote, landing, region }: Posted): void {
    const { to, from } = this;
    if (remote && this.#o.violation?.index !== op.index) this.#open.push(() => to.accept(remote.offset, remote.length));
    if (landing) this.#open.push(() => from.accept(landing.offset, op.length));
    if (region && op.kind === 'LOCAL_INV') from.rig.x.mrDereg(region.mr);
  }

  /** The request completed successfully. */
  #finish(posted: Posted): void {
    const { op, remote, landing, expected, region, window } = posted;
    this.completed++;
    if (window && remote) window.uses--;
    if (window && op.kind === 'BIND_MW') this.#o.own.lend(window);
    if (window && op.kind === 'LOCAL_INV') this.#o.own.closed(window);
    if (isWrite(op.kind) && remote && !this.#isOverwritten(posted)) this.#checkWritten(op, remote);
    if (landing) {
      const { actual, mirror } = this.from;
      if (expected) expected.copy(mirror, landing.offset);
      else if (op.kind !== 'RDMA_READ') this.#checkShared(landing.offset);
      const end = landing.offset + op.length;
      if (actual.compare(mirror, landing.offset, end, landing.offset, end) !== 0)
        this.fail(
          `${op.kind} ${op.index} brought wrong bytes at ${this.from.difference(landing.offset, end) - landing.offset} of ${op.length}`,
        );
      (this.from.zones[this.#o.index] as Zones).landing.giveBack(landing.mark);
    }
    if (region && op.kind === 'LOCAL_INV') this.from.rig.x.mrDereg(region.mr);
  }

  #isOverwritten({ op, remote }: Posted): boolean {
    return this.#posted.some(
      (later) => later.op.index > op.index && isWrite(later.op.kind) && overlap(later.remote as Range, remote as Range),
    );
  }

  #checkWritten(op: Op, { offset, length }: Range): void {
    if (this.to.actual.compare(this.#payload(op), 0, length, offset, offset + length) !== 0)
      this.fail(`${op.kind} ${op.index} is done, its bytes are not there`);
  }

  /** Each value of the shared word is seen once. */
  #checkShared(offset: number): void {
    const value = this.from.actual.readBigUInt64LE(offset);
    if (value >= this.to.view.getBigUint64(this.to.shared, true)) this.fail(`the shared word never was ${value}`);
    if (this.to.seen.has(value)) this.fail(`the shared word was ${value} twice`);
    this.to.seen.add(value);
    this.from.mirror.writeBigUInt64LE(value, offset);
  }

  /** A completion of the peer's receive queue. */
  onReceive(wc: Completion): void {
    const receive = this.#receives.shift();
    if (receive === undefined) this.fail('a receive completion too many', wc);
    const { op, pieces, offset, bytes, mark } = receive;
    if (wc.wrId !== RECEIVES + op.index) this.fail(`receive ${op.index} is due`, wc);
    this.#zones.received.giveBack(mark);
    if (wc.status !== 'SUCCESS') {
      const { violation } = this.#o;
      const isPoison =
        this.receiveEnded === undefined && violation?.index === op.index && wc.status === violation.received;
      const isExpected = isPoison || (wc.status === 'WR_FLUSH_ERR' && this.#mayFail);
      if (!isExpected) this.fail('a receive failed', wc);
      this.receiveEnded ??= wc.status;
      this.#open.push(() => this.to.accept(offset, bytes));
      return;
    }
    if (this.receiveEnded !== undefined) this.fail('a receive succeeded after a failure', wc);
    this.received++;
    this.#checkReceived(op, wc);
    if (op.kind !== 'RDMA_WRITE_WITH_IMM') {
      this.#payload(op).copy(this.to.mirror, offset);
      const end = offset + bytes;
      if (this.to.actual.compare(this.to.mirror, offset, end, offset, end) !== 0)
        this.fail(`${op.kind} ${op.index} of ${op.length} bytes arrived wrong in ${pieces.length} pieces`);
    }
    // a message is reported only when all earlier ones have been placed
    for (const before of this.#posted) {
      if (before.op.index > op.index) break;
      if (isWrite(before.op.kind) && before.remote && !this.#isOverwritten(before))
        this.#checkWritten(before.op, before.remote);
    }
  }

  #checkReceived(op: Op, wc: Completion): void {
    const hasImm = op.kind.endsWith('_IMM');
    const opcode = isWrite(op.kind) ? 'RECV_RDMA_WITH_IMM' : 'RECV';
    const flags = hasImm ? 2 : op.kind === 'SEND_WITH_INV' ? 8 : 0;
    if (wc.opcode !== opcode || wc.flags !== flags || wc.byteLen !== op.length)
      this.fail(`wrong for ${op.kind} of ${op.length}`, wc);
    if (hasImm && wc.imm !== op.imm) this.fail(`imm is not ${op.imm}`, wc);
    if (op.kind !== 'SEND_WITH_INV') return;
    const { region, window } = this.#closing.get(op.index) ?? {};
    if (wc.invalidatedRkey !== (window ?? region)?.rkey) this.fail('another key was closed', wc);
    if (region) this.to.rig.x.mrDereg(region.mr);
    else if (window) this.#o.theirs.closedByOther(window);
  }

  /** Accepts the state that a run which was cut off has left. */
  abandon(): void {
    for (const posted of this.#posted) this.#giveUp(posted);
    for (const { offset, bytes } of this.#receives) this.to.accept(offset, bytes);
    for (const take of this.#open) take();
  }

  /** Nothing may be left over after a run without errors. */
  checkEnd(): void {
    const { fromQp, toQp, ops } = this.#o;
    if (this.ended !== undefined) return;
    const left = { sq: fromQp.attribute('SQ_PENDING'), rq: toQp.attribute('RQ_PENDING') };
    if (left.sq !== 0 || left.rq !== this.#receives.length) this.fail('work requests leaked', left);
    if (this.#mayFail) return;
    if (this.completed !== ops.length) this.fail(`${this.completed} of ${ops.length} completed`);
    if (this.received !== this.#receivable.length) this.fail(`${this.received} of ${this.#receivable.length} received`);
  }
}
