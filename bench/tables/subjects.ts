/** All subjects, in the order of the report, and their results. */
import { judge, type Verdict } from '../report/targets.js';
import type { Row } from '../rig/rounds.js';
import { adapter } from './adapter.js';
import { bulk } from './bulk.js';
import { type CardData, card } from './card.js';
import { cards } from './cards.js';
import { type CollectiveData, collective } from './collective.js';
import { type ConnectData, connect } from './connect.js';
import { icrc } from './crc.js';
import { type FootprintData, footprint } from './footprint.js';
import { type GuestData, guest } from './guest.js';
import { latency } from './latency.js';
import { type LossRow, loss } from './loss.js';
import { type NvmeData, nvme } from './nvme.js';
import { type OffloadData, offload } from './offload.js';
import { type ProgramsData, programs } from './programs.js';
import { rate } from './rate.js';
import { rpc } from './rpc.js';
import { type ScaleData, scale } from './scale.js';
import { streams } from './streams.js';
import type { Subject } from './subject.js';

export const SUBJECTS = [
  bulk,
  adapter,
  cards,
  latency,
  streams,
  rate,
  connect,
  rpc,
  collective,
  card,
  icrc,
  offload,
  scale,
  footprint,
  loss,
  guest,
  programs,
  nvme,
] as readonly Subject[];

/** Results of one run by the name of the subject. Any of them may be missing. */
export interface Results {
  readonly bulk?: Row[];
  readonly adapter?: Row[];
  readonly cards?: Row[];
  readonly latency?: Row[];
  readonly streams?: Row[];
  readonly rate?: Row[];
  readonly connect?: ConnectData;
  readonly rpc?: Row[];
  readonly collective?: CollectiveData;
  readonly card?: CardData;
  readonly offload?: OffloadData;
  readonly scale?: ScaleData;
  readonly footprint?: FootprintData;
  readonly loss?: LossRow[];
  readonly guest?: GuestData;
  readonly programs?: ProgramsData;
  readonly nvme?: NvmeData;
}

/** Judges the targets of all subjects, those without results too. */
export function verdicts(results: Results): Verdict[] {
  return SUBJECTS.flatMap(({ name, targets = [] }) => judge(targets, results[name as keyof Results]));
}
