-- Who may call what. Nobody may write a table; readers read views and tables.

set local role sluice_owner;

grant execute on function
  sluice.enqueue_many(jsonb), sluice.enqueue(text, text, jsonb, jsonb), sluice.wake(text), sluice.reap(int), sluice.promote(int),
  sluice.retain(int, int, int, int), sluice.settle()
to sluice_worker, sluice_operator;

grant execute on function
  sluice.register_worker(text, int, text, text, text, boolean, uuid), sluice.claim(uuid, bigint, int, int, boolean), sluice.flush(),
  sluice.heartbeat(uuid, bigint, uuid[], int[]), sluice.release(uuid[], int[], text, boolean, int), sluice.drain_worker(uuid)
to sluice_worker, sluice_operator;

grant execute on function
  sluice.watch(uuid, uuid[]), sluice.report(uuid, int, jsonb), sluice.adopt(uuid, uuid, int), sluice.complete_many(uuid[], int[], jsonb[]),
  sluice.complete(uuid, int, jsonb, jsonb), sluice.complete_with_next(uuid, int, jsonb, jsonb, jsonb),
  sluice.fail(uuid, int, text, text, jsonb), sluice.stopped(uuid, int)
to sluice_worker;

grant execute on function
  sluice.cancel(uuid, text, text, text, text), sluice.cancel_linked(uuid, text, text, text, text), sluice.cancel_active(jsonb, text, text, int),
  sluice.retry(uuid, text, text, text), sluice.suspend(uuid, text, text, text), sluice.resume(uuid, text, text, text),
  sluice.set_priority(uuid, int, text, text),
  sluice.set_lane(text, text, jsonb, text), sluice.hold_lane(text, text, text, text, text), sluice.hold_all(boolean, text, text, text),
  sluice.set_pool(text, jsonb, text), sluice.undrain_worker(uuid), sluice.mirror_changes(text, int, text[], bigint), sluice.mirror_ack(bigint[], bigint[])
to sluice_operator;

grant execute on function sluice.about(text), sluice.lane_counts(text[]), sluice.lane_sources(text, text), sluice.pool_demand(), sluice.pool_settings(), sluice.pool_workers(text)
to sluice_worker, sluice_operator, sluice_reader;

grant select on sluice.task_status to sluice_worker, sluice_operator, sluice_reader;
grant select on all tables in schema sluice to sluice_reader;

-- The first partitions.
select count(*) from sluice.retain();
