// Losses: an event for the first packet that is dropped or retransmitted since the application has last asked for it.
// One event for the whole card, however many packets and queue pairs: the counters have the rest.
import { EventType } from '../codes';
import { Card } from './card';

export function reportLoss(): void {
  let card = Card.get();
  if (!card.isLossAwaited) return;
  card.isLossAwaited = false;
  card.events.raise(EventType.LOSS, 0);
}
