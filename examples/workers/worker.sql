-- A complete worker in plain SQL: takes tasks until there is none left.
--   psql "$DATABASE_URL" --file worker.sql
-- One session cannot renew its leases while it works, so a task must take less than the pool's lease.
do $worker$
declare
  v_worker   uuid := sluice.register_worker('default', 1, 'worker.sql');
  v_sequence bigint := 0;
  v_task     record;
  v_outcome  text;
begin
  perform sluice.reap();     -- upkeep is everybody's: what other workers lost,
  perform sluice.promote();  -- and what is due by now
  commit;
  loop
    v_sequence := v_sequence + 1;
    select c.track_id, c.attempt, c.type, c.tenant, c.payload into v_task from sluice.claim(v_worker, v_sequence, 1) c;
    commit;  -- a claim is a transaction of its own: it holds locks on lanes
    exit when v_task.track_id is null;
    begin
      -- The work goes here. What it writes is kept or dropped together with the end of the task.
      if v_task.payload ? 'fail' then
        raise exception 'the payload says so';
      end if;
      v_outcome := sluice.complete(v_task.track_id, v_task.attempt, jsonb_build_object('size', length(v_task.payload::text)));
      if v_outcome <> 'completed' then
        raise exception using errcode = 'SL001';  -- cancelled or lost meanwhile: nothing of it may stay
      end if;
    exception
      when sqlstate 'SL001' then
        v_outcome := sluice.stopped(v_task.track_id, v_task.attempt);
      when others then
        v_outcome := sluice.fail(v_task.track_id, v_task.attempt, 'unknown', sqlerrm);
    end;
    commit;
    raise notice '% %: %', v_task.type, v_task.track_id, v_outcome;
  end loop;
end $worker$;
