/**
 * wasm-roce/probe: packets of scripts and faults by rules, to test a peer, and captures to look at.
 *
 * `EventFaultLink` applies faults to chosen packets of a card's own traffic. `ScriptedLink` gives a script the frames
 * of some queue pair numbers; `parseScript` and `runScript` run it. `readCapture`, `analyse` and `ladderPage` show a
 * capture. `runChecks` runs checks against a `Target`, a peer; `probeReport` and its siblings report what they found.
 * Scripts and rules are described in docs/scripts.md.
 *
 * @packageDocumentation
 */

export type { Capture, CapturedPacket } from './probe/capture/captured.js';
export { readCapture } from './probe/capture/read.js';
export type { Audit, AuditPlace } from './probe/checks/audit.js';
export type { Check, CmCheck, RequesterCheck, ResponderCheck, RuleCheck } from './probe/checks/check.js';
export type { Breach, CheckBase, Deviation, Judge, PacketRule } from './probe/checks/checkbase.js';
export { CHECKS } from './probe/checks/checks.js';
export {
  CheckEnd,
  Conversation,
  isSame,
  Nak,
  pattern,
  type Received,
  receivedText,
} from './probe/checks/conversation.js';
export { defineCheck } from './probe/checks/define.js';
export type { CheckRecord } from './probe/checks/record.js';
export { type RequestOptions, ResponderConversation } from './probe/checks/responderconversation.js';
export type { CheckResult, Evidence, Verdict } from './probe/checks/result.js';
export {
  type CheckOptions,
  type CheckRunOptions,
  isNotRun,
  RunEnded,
  runCheck,
  runChecks,
} from './probe/checks/run.js';
export { type Message, Service, timeoutOf } from './probe/checks/service.js';
export type {
  Background,
  CmOptions,
  CmPeer,
  CmQueue,
  CmWay,
  Operation,
  PeerRegion,
  RemoteOperation,
  Requester,
  RequesterOptions,
  Responder,
  ResponderOptions,
  Target,
  Traffic,
  TrafficRequest,
} from './probe/checks/target.js';
export { isPermitted } from './probe/checks/target.js';
export { checkFaultRule } from './probe/faults/matcher.js';
export { analyse, type Ladder } from './probe/ladder/analysis.js';
export { aboutText, connectionText, type LadderConnection } from './probe/ladder/connection.js';
export { KINDS, type Kind, type LadderPacket, MARKS } from './probe/ladder/packet.js';
export { ladderPage } from './probe/ladder/page.js';
export type { Pairing } from './probe/ladder/pairing.js';
export {
  type ConnectionFindings,
  type LadderFinding,
  type LadderPart,
  ladderFindings,
  selectLadder,
} from './probe/ladder/select.js';
export { EventFaultLink, type FaultHits } from './probe/link/eventfaults.js';
export type { PacketTimes } from './probe/link/kerneltimes.js';
export { LinkPort } from './probe/link/linkport.js';
export { MadPort } from './probe/link/madport.js';
export { ReceivingPort } from './probe/link/messageport.js';
export { type PingOptions, PingPort } from './probe/link/pingport.js';
export { ScriptedLink, type ScriptedLinkOptions, type ScriptedQueue } from './probe/link/scriptedlink.js';
export { SendingPort } from './probe/link/sendingport.js';
export type {
  Aeth,
  AtomicEth,
  Bth,
  Decoded,
  Deth,
  Eth,
  Extensions,
  Feth,
  Frame,
  Ip4,
  Ip6,
  Reth,
  Udp,
} from './probe/packet/frame.js';
export { CNP, Op } from './probe/packet/opcodes.js';
export {
  type Answer,
  ack,
  type Base,
  decode,
  describe,
  encodeFrame,
  type Flow,
  flowOf,
  nak,
  type Packet,
  type Pieces,
  type Remote,
  type RemoteRange,
  type RequestPieces,
  request,
  response,
  type WithImm,
  type WithInvalidate,
} from './probe/packet/packets.js';
export { psnAfter, psnDistance } from './probe/packet/psn.js';
export { probeCapture } from './probe/report/capture.js';
export {
  compareReports,
  comparisonText,
  isUnchanged,
  type MedianChange,
  type ProbeComparison,
  type VerdictChange,
} from './probe/report/compare.js';
export type { Distribution } from './probe/report/distribution.js';
export type { CmFigures, FlowFigures } from './probe/report/figures.js';
export {
  type Adapter,
  type Candidate,
  type Fingerprint,
  fingerprint,
  fingerprintText,
} from './probe/report/fingerprint.js';
export { junitReport } from './probe/report/junit.js';
export { type ProbePageOptions, probePage } from './probe/report/page.js';
export {
  type CheckReport,
  distributions,
  type ProbeReport,
  parseProbeReport,
  probeReport,
} from './probe/report/report.js';
export type { Outcome, ProbeLink, ProbeRun } from './probe/report/run.js';
export { distributionText } from './probe/report/values.js';
export type { Script, SourcePosition } from './probe/script/ast.js';
export { checkScript } from './probe/script/check.js';
export { ScriptError } from './probe/script/error.js';
export { formatScript } from './probe/script/format.js';
export { parseScript } from './probe/script/parse.js';
export type { Arrival, PacketPort } from './probe/script/port.js';
export { type RunOptions, runScript, type ScriptResult, type TranscriptEntry } from './probe/script/run.js';
