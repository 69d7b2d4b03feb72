// What the house proposed, by the ids of its nodes: the first is approved, the second rejected, the third cancelled.

import assert from 'node:assert/strict';
import Together from 'together-ai';
import { args, clusters, until } from './client.mjs';
import { whole } from './types.mjs';

const [cluster_id = '', approved = '', rejected = '', cancelled = ''] = args;
const { remediations } = clusters;
const look = () =>
  remediations.list('-', { cluster_id, state: ['PENDING_APPROVAL'], trigger: ['REMEDIATION_TRIGGER_AUTOMATED'] });
const found = await until(look, (listed) => listed.remediations.length === 3, 'three proposals');
const proposal = (instance_id: string) => {
  const { id } = found.remediations.find((one) => one.instance_id === instance_id)!;
  return [id, { cluster_id, instance_id }] as const;
};

const [id, where] = proposal(approved);
await assert.rejects(
  remediations.approve(id, { ...where, mode: 'REMEDIATION_MODE_HOST_POWER_CYCLE' }),
  (error) => error instanceof Together.BadRequestError && error.message.includes('HOST_POWER_CYCLE'),
);
const approval = { ...where, comment: 'go ahead', mode: 'REMEDIATION_MODE_HOST_AWARE' } as const;
const taken = whole('Remediation', await remediations.approve(id, approval));
assert.deepEqual([taken.state, taken.review_comment], ['PENDING', 'go ahead']);

const [other, there] = proposal(rejected);
const refused = whole('Remediation', await remediations.reject(other, { ...there, comment: 'not now' }));
assert.deepEqual([refused.state, refused.review_comment, Boolean(refused.end_time)], ['CANCELLED', 'not now', true]);
await assert.rejects(remediations.cancel(other, there), Together.BadRequestError);

const [third, elsewhere] = proposal(cancelled);
assert.equal(whole('Remediation', await remediations.cancel(third, elsewhere)).state, 'CANCELLED');

const ended = await until(() => remediations.retrieve(id, where), (seen) => Boolean(seen.end_time), 'ended');
assert.equal(whole('Remediation', ended).state, 'SUCCEEDED', ended.error_message);
